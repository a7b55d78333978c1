//! The request side: any cut says the same, and a valid request's model is the one it names.
#![no_main]

use http::{HeaderMap, Method};
use inferwatch_fuzz::cut;
use inferwatch_proxy::observe::{Observer, RequestHead};
use inferwatch_record::RequestLine;
use libfuzzer_sys::fuzz_target;

fn ask(path: &str, pieces: &[&[u8]]) -> (Option<String>, String) {
    let none = HeaderMap::new();
    let head = RequestHead { method: &Method::POST, path, headers: &none };
    let mut observer = Observer::new(&head, true);
    for piece in pieces {
        observer.request_chunk(piece);
    }
    let model = observer.model().map(str::to_owned);
    let text = observer.take_text();
    let mut line = RequestLine::default();
    let end = inferwatch_proxy::observe::BodyEnd::Abandoned;
    observer.conclude(end, std::time::Duration::ZERO, &mut line);
    (model, format!("{line:?} {text:?}"))
}

fuzz_target!(|input: &[u8]| {
    let (body, pieces) = cut(input);
    for path in ["/v1/chat/completions", "/v1/embeddings", "/predict"] {
        let whole = ask(path, &[body]);
        assert_eq!(ask(path, &pieces), whole);
        let Ok(request) = serde_json::from_slice::<serde_json::Value>(body) else { continue };
        let twice = body.windows(7).filter(|part| *part == b"\"model\"").count() > 1;
        let named = request.get("model").and_then(|model| model.as_str());
        if let Some(named) = named.filter(|named| !named.is_empty() && named.len() <= 256) {
            assert!(twice || body.contains(&b'\\') || whole.0.as_deref() == Some(named));
        }
    }
});
