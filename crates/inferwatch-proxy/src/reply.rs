//! The few answers of our own, in the words of the caller's dialect.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

use http::StatusCode;
use serde_json::json;

use crate::observe::Dialect;

/// The body of an error, as a client of `dialect` expects to read it. Always JSON.
pub(crate) fn error_body(dialect: Dialect, status: StatusCode, message: &str) -> String {
    let kind = kind_of(status);
    let body = match dialect {
        Dialect::Anthropic => {
            json!({"type": "error", "error": {"type": kind.anthropic, "message": message}})
        }
        Dialect::Ollama => json!({ "error": message }),
        Dialect::Tei => json!({"error": message, "error_type": kind.tei}),
        Dialect::LlamaNative => {
            json!({"error": {"code": status.as_u16(), "message": message, "type": kind.llama}})
        }
        _ => json!({"error": {
            "message": message, "type": kind.openai, "param": null, "code": kind.openai,
        }}),
    };
    body.to_string()
}

struct Kind {
    openai: &'static str,
    anthropic: &'static str,
    tei: &'static str,
    llama: &'static str,
}

fn kind_of(status: StatusCode) -> Kind {
    match status {
        StatusCode::TOO_MANY_REQUESTS => Kind {
            openai: "rate_limit_exceeded",
            anthropic: "rate_limit_error",
            tei: "Overloaded",
            llama: "unavailable_error",
        },
        status if status.is_client_error() => Kind {
            openai: "invalid_request_error",
            anthropic: "invalid_request_error",
            tei: "Validation",
            llama: "invalid_request_error",
        },
        _ => Kind {
            openai: "upstream_error",
            anthropic: "api_error",
            tei: "Unhealthy",
            llama: "unavailable_error",
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(dialect: Dialect, status: StatusCode, expected: &str) {
        let body: serde_json::Value =
            serde_json::from_str(&error_body(dialect, status, "say \"no\"")).unwrap();
        assert_eq!(body, serde_json::from_str::<serde_json::Value>(expected).unwrap());
    }

    #[test]
    fn each_dialect_reads_its_own_error() {
        let full = StatusCode::TOO_MANY_REQUESTS;
        check(
            Dialect::OpenAi,
            full,
            r#"{"error":{"message":"say \"no\"","type":"rate_limit_exceeded","param":null,"code":"rate_limit_exceeded"}}"#,
        );
        check(
            Dialect::Anthropic,
            full,
            r#"{"type":"error","error":{"type":"rate_limit_error","message":"say \"no\""}}"#,
        );
        check(Dialect::Ollama, full, r#"{"error":"say \"no\""}"#);
        check(Dialect::Tei, full, r#"{"error":"say \"no\"","error_type":"Overloaded"}"#);
        check(
            Dialect::LlamaNative,
            StatusCode::BAD_GATEWAY,
            r#"{"error":{"code":502,"message":"say \"no\"","type":"unavailable_error"}}"#,
        );
    }
}
