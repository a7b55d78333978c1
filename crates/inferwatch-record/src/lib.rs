//! One honest JSON line per inference request.

mod line;

pub use line::{
    DroppedLine, Line, OpenLine, Outcome, ParseTrouble, RequestLine, StartLine, StopLine, TokensSrc,
};
