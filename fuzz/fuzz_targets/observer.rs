//! The whole observer: any cut of an answer says the same, in every format and coding.
#![no_main]

use inferwatch_fuzz::{cut, observe};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let (body, pieces) = cut(input);
    let routes = ["/v1/chat/completions", "/completion", "/api/chat", "/rerank", "/own"];
    let path = routes.get(body.len() % routes.len()).copied().unwrap_or("/");
    for content_type in ["text/event-stream", "application/x-ndjson", "application/json"] {
        for coding in ["identity", "gzip"] {
            let whole = observe(path, content_type, coding, &[body]);
            assert_eq!(observe(path, content_type, coding, &pieces), whole);
        }
    }
});
