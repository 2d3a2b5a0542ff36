//! Redis as it is run: behind Sentinels, in a Cluster, behind TLS, on a socket, with rights and passwords that change.

mod cluster;
mod login;
mod rights;
mod scene;
mod sentinel;
mod tls;
