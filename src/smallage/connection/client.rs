//! One connection to one server: who we are there, TLS, and what went wrong in words.

use std::{fmt, net::SocketAddr, path::Path, time::Duration};

use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo,
    RedisError, RedisFuture, TlsCertificates,
    aio::MultiplexedConnection,
    io::{
        AsyncDNSResolver,
        tcp::{TcpSettings, socket2::TcpKeepalive},
    },
};

use crate::{
    config::{Host, LARGEST_PEM, RedisUrl, Secret, SecretSource, SmallageConfig, read_file},
    ledger::{Result, StoreError},
    smallage::trouble::{self, sort_error},
};

/// A TCP or TLS connection must stand within this.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A peer that is silent for this long is asked whether it is still there.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(15);
/// Data that a peer does not acknowledge for this long means that it has vanished.
const USER_TIMEOUT: Duration = Duration::from_secs(20);

/// How to come in, as it stands in the configuration now: secrets and certificates in files are read anew.
#[derive(Clone)]
pub(super) struct Access {
    /// To the URL's first host.
    info: ConnectionInfo,
    tls: Option<Tls>,
}

#[derive(Clone)]
struct Tls {
    certificates: TlsCertificates,
    /// Whether the URL wants no check at all.
    insecure: bool,
    /// The name that certificates must bear instead of the host's own.
    server_name: Option<String>,
}

fn denied(error: &dyn fmt::Display) -> StoreError {
    StoreError::Denied(error.to_string())
}

fn secret(source: &SecretSource) -> Result<Secret> {
    source.read().map_err(|error| denied(&error))
}

/// Where the configuration's URL leads now.
pub(super) fn url(config: &SmallageConfig) -> Result<RedisUrl> {
    RedisUrl::read(secret(&config.url)?.reveal()).map_err(|wrong| denied(&format!("the Redis URL {wrong}")))
}

impl Access {
    /// To the Redis itself.
    pub(super) fn to_redis(config: &SmallageConfig, url: &RedisUrl) -> Result<Access> {
        // The library's errors about a URL may quote it, and it may hold a password.
        let info: ConnectionInfo = url
            .first
            .as_str()
            .into_connection_info()
            .map_err(|error| denied(&format!("the Redis URL is not valid ({})", error.category())))?;
        let mut settings = info.redis_settings().clone().set_lib_name("sexton", env!("CARGO_PKG_VERSION"));
        if let Some(username) = &config.username {
            settings = settings.set_username(username);
        }
        if let Some(password) = &config.password {
            settings = settings.set_password(secret(password)?.reveal());
        }
        let tcp = TcpSettings::default()
            .set_nodelay(true)
            .set_keepalive(
                TcpKeepalive::new().with_time(KEEPALIVE_AFTER).with_interval(KEEPALIVE_AFTER / 3).with_retries(3),
            )
            .set_user_timeout(USER_TIMEOUT);
        let tls = match info.addr() {
            ConnectionAddr::TcpTls { insecure, .. } => Some(Tls::read(config, *insecure)?),
            _ => None,
        };
        Ok(Access { info: info.set_redis_settings(settings).set_tcp_settings(tcp), tls })
    }

    /// To the Sentinels of the same URL: as whom they want us, with the same TLS.
    pub(super) fn to_sentinels(config: &SmallageConfig, url: &RedisUrl) -> Result<Access> {
        let to_redis = Access::to_redis(config, url)?;
        // User, password and database of the URL are the Redis's.
        let mut settings = redis::RedisConnectionInfo::default().set_lib_name("sexton", env!("CARGO_PKG_VERSION"));
        if let Some(sentinel) = &config.sentinel {
            if let Some(username) = &sentinel.username {
                settings = settings.set_username(username);
            }
            if let Some(password) = &sentinel.password {
                settings = settings.set_password(secret(password)?.reveal());
            }
        }
        Ok(Access { info: to_redis.info.set_redis_settings(settings), ..to_redis })
    }

    /// Connects to the URL's own host or socket.
    pub(super) async fn open(&self, response_timeout: Duration) -> Result<MultiplexedConnection> {
        let host = match self.info.addr() {
            ConnectionAddr::Tcp(name, port) | ConnectionAddr::TcpTls { host: name, port, .. } => {
                Some(Host { name: name.clone(), port: *port })
            }
            _ => None,
        };
        match host {
            Some(host) => self.open_at(&host, response_timeout, CONNECT_TIMEOUT).await,
            None => self.connect(self.info.clone(), None, response_timeout, CONNECT_TIMEOUT).await,
        }
    }

    /// Connects to this host, which must be there within `patience`.
    pub(super) async fn open_at(
        &self,
        host: &Host,
        response_timeout: Duration,
        patience: Duration,
    ) -> Result<MultiplexedConnection> {
        let address = match &self.tls {
            None => ConnectionAddr::Tcp(host.name.clone(), host.port),
            Some(tls) => ConnectionAddr::TcpTls {
                host: tls.server_name.clone().unwrap_or_else(|| host.name.clone()),
                port: host.port,
                insecure: tls.insecure,
                tls_params: None,
            },
        };
        self.connect(self.info.clone().set_addr(address), Some(host), response_timeout, patience.min(CONNECT_TIMEOUT))
            .await
    }

    async fn connect(
        &self,
        info: ConnectionInfo,
        host: Option<&Host>,
        response_timeout: Duration,
        patience: Duration,
    ) -> Result<MultiplexedConnection> {
        let place = host.map_or_else(|| info.addr().to_string(), Host::to_string);
        let mut config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(patience))
            .set_response_timeout(Some(response_timeout));
        let client = match &self.tls {
            None => Client::open(info),
            Some(tls) => {
                if let (Some(_), Some(host)) = (&tls.server_name, host) {
                    // The library checks the certificate for the name that it looks up.
                    config = config.set_dns_resolver(Always(host.clone()));
                }
                Client::build_with_tls(info, tls.certificates.clone())
            }
        };
        // Nothing was sent yet: what is wrong is wrong with the files.
        let client = client.map_err(|error| denied(&format!("TLS: {error}")))?;
        client
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .map_err(|error| at(&place, self.refused(&error)))
    }
}

impl Access {
    /// Why a server did not let us in.
    fn refused(&self, error: &RedisError) -> StoreError {
        let database = self.info.redis_settings().db();
        let said = error.detail().unwrap_or_default();
        // Who we are is accepted by then; what else the server has to say of the start goes unheard.
        let of_database = database != 0 && error.code() == Some("ERR") && !said.contains("max number of clients");
        if of_database && !matches!(error.kind(), ErrorKind::AuthenticationFailed) {
            return if said.contains("permissions to run") {
                denied(&format!("NOPERM {said}"))
            } else {
                denied(&format!("{} {database}: {said}", trouble::DATABASE))
            };
        }
        refused(error, self.tls.as_ref())
    }
}

impl Tls {
    fn read(config: &SmallageConfig, insecure: bool) -> Result<Tls> {
        let none = crate::config::TlsConfig::default();
        let tls = config.tls.as_ref().unwrap_or(&none);
        let pem = |path: &Path| {
            read_file(path, LARGEST_PEM).map_err(|error| denied(&format!("cannot read {}: {error}", path.display())))
        };
        let client_tls = match (&tls.cert, &tls.key) {
            (Some(cert), Some(key)) => Some(ClientTlsConfig { client_cert: pem(cert)?, client_key: pem(key)? }),
            _ => None,
        };
        let root_cert = tls.ca.as_deref().map(pem).transpose()?;
        let certificates = TlsCertificates { client_tls, root_cert };
        Ok(Tls { certificates, insecure, server_name: tls.server_name.clone() })
    }
}

/// Finds the same host whatever name is looked up.
struct Always(Host);

impl AsyncDNSResolver for Always {
    fn resolve<'a, 'b: 'a>(
        &'a self,
        _host: &'b str,
        _port: u16,
    ) -> RedisFuture<'a, Box<dyn Iterator<Item = SocketAddr> + Send + 'a>> {
        Box::pin(async move {
            let addresses = tokio::net::lookup_host((self.0.name.as_str(), self.0.port)).await?;
            Ok(Box::new(addresses) as Box<dyn Iterator<Item = SocketAddr> + Send>)
        })
    }
}

/// The same trouble with the place where it was met.
pub(super) fn at(place: &dyn fmt::Display, trouble: StoreError) -> StoreError {
    match trouble {
        StoreError::Unavailable(why) => StoreError::Unavailable(format!("{place}: {why}")),
        StoreError::Denied(why) => StoreError::Denied(format!("{place}: {why}")),
        StoreError::NoWrites(why) => StoreError::NoWrites(format!("{place}: {why}")),
        StoreError::Unexpected(why) => StoreError::Unexpected(format!("{place}: {why}")),
        other => other,
    }
}

/// Why a server did not let us in.
fn refused(error: &RedisError, tls: Option<&Tls>) -> StoreError {
    if let Some(why) = trouble::of_tls(error) {
        return StoreError::Unavailable(why);
    }
    if error.is_connection_dropped() && !error.is_connection_refusal() {
        // The server's last words are lost when it closes before we have written ours.
        let why = match tls {
            None => "closes new connections at once; it may have reached its limit (maxclients), or want TLS (rediss)",
            Some(tls) if tls.certificates.client_tls.is_none() => {
                "closes new connections at once; it may want a client certificate (tls: cert, key), speak no TLS, or \
                 have reached its limit (maxclients)"
            }
            Some(_) => {
                "closes new connections at once; it may not know our client certificate, speak no TLS, or have reached \
                 its limit (maxclients)"
            }
        };
        return StoreError::Unavailable(why.to_owned());
    }
    if tls.is_some() && error.is_timeout() {
        let why = "no TLS handshake in time; it may speak no TLS (write redis instead of rediss in the URL)";
        return StoreError::Unavailable(why.to_owned());
    }
    sort_error(error).0
}
