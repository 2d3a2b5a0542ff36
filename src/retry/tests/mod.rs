//! The closed loop as a whole: a model of workers and what they depend on, and properties.

mod properties;
mod simulation;
mod world;
