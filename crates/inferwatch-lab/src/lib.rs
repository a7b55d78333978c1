//! Development only: fake model servers with real CPU cost and faults, a replayer of recordings,
//! a raw client and a load generator.
//!
//! [`raw`] is an upstream on a bare socket that plays scripts; [`fake`] and [`replay`] stand on
//! it. [`client`] reads and writes exact bytes; [`load`] stands on it.

mod answer;
pub mod client;
pub mod cost;
pub mod dialect;
pub mod engine;
pub mod fake;
pub mod fault;
mod gate;
mod instant;
pub mod load;
pub mod observed;
mod play;
pub mod raw;
pub mod recording;
pub mod replay;
pub mod rng;
pub mod script;
pub mod sse;
pub mod transform;
pub mod wire;
