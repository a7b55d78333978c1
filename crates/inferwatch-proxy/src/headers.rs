//! Which headers end at this hop. Everything else passes in its order, its case and its bytes.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

use http::header::{self, HeaderMap, HeaderName};

/// Headers of one hop by RFC 9110 section 7.6.1, whether or not `Connection` names them.
const HOP_BY_HOP: [HeaderName; 4] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::UPGRADE,
];

/// Takes out the headers of this hop. `Transfer-Encoding` and `TE` are taken too, save for what the
/// next hop needs to hear: chunked framing is made anew, and `TE: trailers` is passed on.
pub(crate) fn end_to_end(mut headers: HeaderMap) -> HeaderMap {
    settle_framing(&mut headers);
    if !headers.keys().any(|name| HOP_BY_HOP.contains(name)) {
        return headers;
    }
    let named = named_by_connection(&headers);
    let mut kept = HeaderMap::with_capacity(headers.len());
    for (name, value) in &headers {
        if !HOP_BY_HOP.contains(name) && !named.contains(name) {
            kept.append(name.clone(), value.clone());
        }
    }
    kept
}

/// A body in chunks has no length: a `Content-Length` beside it is an attempt at smuggling.
fn settle_framing(headers: &mut HeaderMap) {
    if headers.contains_key(header::TRANSFER_ENCODING)
        && headers.contains_key(header::CONTENT_LENGTH)
    {
        headers.remove(header::CONTENT_LENGTH);
    }
}

fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    let values = headers.get_all(header::CONNECTION).into_iter();
    let names = values.filter_map(|value| value.to_str().ok()).flat_map(|text| text.split(','));
    // Framing and addressing cannot be argued away by a header of the peer.
    let fixed = [header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::HOST, header::TE];
    names
        .filter_map(|name| name.trim().parse::<HeaderName>().ok())
        .filter(|name| !fixed.contains(name))
        .collect()
}

/// Whether the client asks to leave HTTP (WebSocket and its kind).
pub(crate) fn wants_upgrade(headers: &HeaderMap) -> bool {
    headers.contains_key(header::UPGRADE)
        && headers.get_all(header::CONNECTION).iter().any(|value| {
            let tokens = value.as_bytes().split(|byte| *byte == b',');
            tokens.map(<[u8]>::trim_ascii).any(|token| token.eq_ignore_ascii_case(b"upgrade"))
        })
}

/// Whether the client waits for `100 Continue` before it sends the body.
pub(crate) fn expects_continue(headers: &HeaderMap) -> bool {
    headers
        .get(header::EXPECT)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

/// Whether the answer is an event stream. llama-server announces keep-alive and closes after one all
/// the same, often a moment later than its last chunk: a request sent into that gap would be lost.
pub(crate) fn is_event_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map(|value| value.as_bytes());
    kind.is_some_and(|kind| kind.starts_with(b"text/event-stream"))
}

/// The trace id in a `traceparent` header (W3C Trace Context), if the header is well formed.
pub(crate) fn trace_id(headers: &HeaderMap) -> Option<String> {
    let text = headers.get("traceparent")?.to_str().ok()?;
    let id = text.split('-').nth(1)?;
    let hex = id.len() == 32 && id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    (hex && id.bytes().any(|b| b != b'0')).then(|| id.to_owned())
}

/// The caller's own name for the request.
pub(crate) fn request_id(headers: &HeaderMap) -> Option<String> {
    let value = headers.get("x-request-id")?.as_bytes();
    (!value.is_empty()).then(|| String::from_utf8_lossy(value).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn map(pairs: &[(&str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&str, &str)| {
            (name.parse::<HeaderName>().unwrap(), value.parse::<HeaderValue>().unwrap())
        };
        pairs.iter().map(pair).collect()
    }

    #[track_caller]
    fn check(before: &[(&str, &str)], after: &[(&str, &str)]) {
        let kept = end_to_end(map(before));
        let kept: Vec<_> = kept.iter().map(|(n, v)| (n.as_str(), v.to_str().unwrap())).collect();
        assert_eq!(kept, after);
    }

    #[test]
    fn end_to_end_headers_keep_their_order() {
        check(
            &[("b", "1"), ("connection", "close, x-mine"), ("x-mine", "2"), ("a", ""), ("c", "3")],
            &[("b", "1"), ("a", ""), ("c", "3")],
        );
        check(&[("keep-alive", "timeout=5"), ("z", "1"), ("y", "2")], &[("z", "1"), ("y", "2")]);
        check(&[("connection", "te"), ("te", "trailers")], &[("te", "trailers")]);
        check(&[("upgrade", "h2c"), ("connection", "upgrade"), ("a", "1")], &[("a", "1")]);
    }

    #[test]
    fn framing_cannot_be_argued_away() {
        check(
            &[("connection", "content-length, host"), ("content-length", "3"), ("host", "h")],
            &[("content-length", "3"), ("host", "h")],
        );
        check(
            &[("transfer-encoding", "chunked"), ("content-length", "3")],
            &[("transfer-encoding", "chunked")],
        );
    }

    #[test]
    fn upgrades_need_both_headers() {
        assert!(wants_upgrade(&map(&[("connection", "keep-alive, Upgrade"), ("upgrade", "ws")])));
        assert!(!wants_upgrade(&map(&[("upgrade", "websocket")])));
        assert!(!wants_upgrade(&map(&[("connection", "upgrade")])));
    }

    #[test]
    fn trace_ids() {
        let id = "4bf92f3577b34da6a3ce929d0e0e4736";
        let header = format!("00-{id}-00f067aa0ba902b7-01");
        assert_eq!(trace_id(&map(&[("traceparent", &header)])).as_deref(), Some(id));
        for bad in ["", "00", "00-xyz-1-01", "00-00000000000000000000000000000000-1-01"] {
            assert_eq!(trace_id(&map(&[("traceparent", bad)])), None, "{bad}");
        }
    }
}
