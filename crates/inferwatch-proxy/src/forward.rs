//! One request: let in, sent up, answered. Every early return writes its line through the guard.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, Uri, Version};
use hyper::body::Incoming;
use inferwatch_record::{Outcome, Recorder};
use tokio::sync::oneshot;

use crate::answer::{Answer, OnAbort, Relay};
use crate::cap;
use crate::headers;
use crate::io::Traffic;
use crate::lifecycle::Lifecycle;
use crate::limits::{Admission, Permit, Refused};
use crate::link::{self, Link};
use crate::observe::{Dialect, Observer, RequestHead, RouteKind};
use crate::pool::Pool;
use crate::reply;
use crate::tokens::TokenDesk;
use crate::tunnel;
use crate::upload::{self, Upload};
use crate::watch::{Guard, Watch};

/// A route is kept up to this length; the line shows less.
const ROUTE_BYTES: usize = 1024;

/// What every request needs.
pub(crate) struct Forwarder {
    pub(crate) pool: Arc<Pool>,
    pub(crate) upstream: String,
    pub(crate) admission: Option<Arc<Admission>>,
    pub(crate) max_tokens: Option<u64>,
    pub(crate) on_abort: OnAbort,
    pub(crate) recorder: Recorder,
    pub(crate) desk: TokenDesk,
    pub(crate) lifecycle: Arc<Lifecycle>,
    /// Requests accepted so far.
    pub(crate) requests: Arc<AtomicU64>,
}

/// A request on its way, with what is known from its head.
pub(crate) struct Call {
    pub(crate) guard: Guard,
    pub(crate) permit: Option<Permit>,
    kind: RouteKind,
    dialect: Dialect,
}

/// Why a request goes no further.
struct Refusal {
    status: StatusCode,
    outcome: Outcome,
    message: String,
    retry_after_s: Option<u64>,
}

impl Refusal {
    fn new(status: StatusCode, outcome: Outcome, message: impl Into<String>) -> Self {
        Refusal { status, outcome, message: message.into(), retry_after_s: None }
    }

    /// The upstream took the request, or part of it, and went away without a word.
    fn unanswered(error: &hyper::Error) -> Self {
        let why = link::in_words(error);
        let message = format!("the model server did not answer the request it took: {why}");
        Refusal::new(StatusCode::BAD_GATEWAY, Outcome::UpstreamError, message)
    }
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        let message = format!("too many requests: {}", refused.why);
        let refusal = Refusal::new(StatusCode::TOO_MANY_REQUESTS, Outcome::Shed, message);
        Refusal { retry_after_s: Some(refused.retry_after_s), ..refusal }
    }
}

impl Forwarder {
    /// Answers one request.
    pub(crate) async fn serve(
        self: Arc<Self>,
        request: Request<Incoming>,
        client: Arc<Traffic>,
    ) -> Response<Answer> {
        let call = self.begin(&request, client);
        if self.on_abort == OnAbort::Cancel {
            return self.answer(call, request).await;
        }
        // The answer that nobody waits for any more comes back from the channel and drains itself.
        let (hand_over, handed) = oneshot::channel();
        tokio::spawn(async move {
            let _ = hand_over.send(self.answer(call, request).await);
        });
        handed
            .await
            .unwrap_or_else(|_| own_answer(StatusCode::INTERNAL_SERVER_ERROR, String::new()))
    }

    fn begin(&self, request: &Request<Incoming>, client: Arc<Traffic>) -> Call {
        self.requests.fetch_add(1, Relaxed);
        let started = client.first_read().unwrap_or_else(Instant::now);
        let path = request.uri().path();
        let head = RequestHead { method: request.method(), path, headers: request.headers() };
        let observer = Observer::new(&head, self.desk.counts());
        let (kind, dialect) = (observer.kind(), observer.dialect());
        let mut span = self.recorder.span_at(capped_route(path), started);
        {
            let mut line = span.line_mut();
            line.upstream = Some(self.upstream.clone());
            line.trace_id = headers::trace_id(request.headers());
            line.id = headers::request_id(request.headers()).or(line.id.take());
        }
        let watch = Watch::new(started, observer, span);
        let guard = Guard::new(watch, self.desk.clone(), client, self.lifecycle.clone());
        Call { guard, permit: None, kind, dialect }
    }

    async fn answer(&self, mut call: Call, request: Request<Incoming>) -> Response<Answer> {
        let dialect = call.dialect;
        match self.try_answer(&mut call, request).await {
            Ok((response, link)) => self.relay(call, response, link),
            Err(refusal) => {
                call.guard.refuse(refusal.status, refusal.outcome, &refusal.message);
                let body = reply::error_body(dialect, refusal.status, &refusal.message);
                let mut response = own_answer(refusal.status, body);
                if let Some(seconds) = refusal.retry_after_s {
                    response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
                }
                response
            }
        }
    }

    async fn try_answer(
        &self,
        call: &mut Call,
        request: Request<Incoming>,
    ) -> Result<(Response<Incoming>, Option<Link>), Refusal> {
        if request.method() == Method::CONNECT {
            let message = "CONNECT is not served: this is a proxy in front of one model server";
            return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, Outcome::Shed, message));
        }
        self.admit(call).await?;
        if headers::wants_upgrade(request.headers()) {
            let response = tunnel::request(&self.pool, &call.guard, request).await;
            return response.map(|response| (response, None)).map_err(|error| match error {
                tunnel::Failure::Connect(error) => self.connect_failed(&error),
                tunnel::Failure::Unanswered(error) => Refusal::unanswered(&error),
            });
        }
        let request = self.prepare(call, request).await?;
        self.exchange(request).await.map(|(response, link)| (response, Some(link)))
    }

    async fn admit(&self, call: &mut Call) -> Result<(), Refusal> {
        let Some(admission) = &self.admission else { return Ok(()) };
        if matches!(call.kind, RouteKind::NoModelWork | RouteKind::LongTransfer) {
            return Ok(());
        }
        let came = Instant::now();
        let entered = admission.enter().await;
        call.guard.watch().waited(came.elapsed());
        call.permit = Some(entered?);
        Ok(())
    }

    /// The request as it goes up.
    async fn prepare(
        &self,
        call: &Call,
        request: Request<Incoming>,
    ) -> Result<Request<Upload>, Refusal> {
        let (mut parts, body) = request.into_parts();
        let watch = call.guard.watch();
        let mut upload = match self.max_tokens {
            Some(max) if cap::applies(call.kind) && parts.method == Method::POST => {
                self.capped(call, &mut parts, body, max).await?
            }
            _ => Upload::stream(body, watch.clone()),
        };
        let expects = headers::expects_continue(&parts.headers);
        let mut request = Request::from_parts(upward(parts), ());
        if expects && !http_body::Body::is_end_stream(&upload) {
            let said = std::sync::Mutex::new(Some(upload.await_continue()));
            hyper::ext::on_informational(&mut request, move |response| {
                if response.status() == StatusCode::CONTINUE
                    && let Ok(mut said) = said.lock()
                {
                    *said = None;
                }
            });
        }
        Ok(request.map(|()| upload))
    }

    async fn capped(
        &self,
        call: &Call,
        parts: &mut Parts,
        body: Incoming,
        max_tokens: u64,
    ) -> Result<Upload, Refusal> {
        let refuse = |status, message: String| Err(Refusal::new(status, Outcome::Shed, message));
        if parts.headers.contains_key(header::CONTENT_ENCODING) {
            let message = "--max-tokens cannot look into a compressed request".to_owned();
            return refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, message);
        }
        let whole = match upload::read_whole(body, call.guard.watch()).await {
            Ok(whole) => whole,
            Err(upload::Unread::TooLarge) => {
                let limit = upload::WHOLE_BODY_BYTES >> 20;
                let message = format!("a request over {limit} MiB cannot be held to --max-tokens");
                return refuse(StatusCode::PAYLOAD_TOO_LARGE, message);
            }
            Err(upload::Unread::Broken(error)) => {
                return refuse(StatusCode::BAD_REQUEST, format!("the request broke off: {error}"));
            }
        };
        parts.headers.remove(header::EXPECT);
        match cap::cap(call.dialect, &whole, max_tokens) {
            Ok(None) => Ok(Upload::rewritten(whole, call.guard.watch().clone())),
            Ok(Some(capped)) => {
                call.guard.edit(|line| line.capped_max_tokens = Some(max_tokens));
                parts.headers.remove(header::TRANSFER_ENCODING);
                parts.headers.insert(header::CONTENT_LENGTH, capped.len().into());
                Ok(Upload::rewritten(Bytes::from(capped), call.guard.watch().clone()))
            }
            Err(error) => {
                let message = format!("not a JSON object, cannot be held to --max-tokens: {error}");
                refuse(StatusCode::BAD_REQUEST, message)
            }
        }
    }

    async fn exchange(
        &self,
        mut request: Request<Upload>,
    ) -> Result<(Response<Incoming>, Link), Refusal> {
        // A kept connection may have been closed by the upstream a moment ago. If nothing was sent
        // over it the request comes back, and is tried once more over a new one.
        if let Some(link) = self.pool.take_idle(Instant::now()) {
            match link.send(request).await {
                Ok(answer) => return Ok(answer),
                Err(mut failed) => match failed.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(Refusal::unanswered(failed.error())),
                },
            }
        }
        let link = self.pool.connect().await.map_err(|error| self.connect_failed(&error))?;
        link.send(request).await.map_err(|failed| Refusal::unanswered(failed.error()))
    }

    fn connect_failed(&self, error: &std::io::Error) -> Refusal {
        let message = format!("cannot connect to the model server at {}: {error}", self.upstream);
        Refusal::new(StatusCode::BAD_GATEWAY, Outcome::ConnectFailed, message)
    }

    fn relay(
        &self,
        mut call: Call,
        mut response: Response<Incoming>,
        link: Option<Link>,
    ) -> Response<Answer> {
        let at = link.as_ref().map_or_else(Instant::now, Link::last_read);
        call.guard.watch().response_head(response.status(), response.headers(), at);
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return tunnel::switch(call, response);
        }
        let (parts, body) = {
            *response.version_mut() = Version::HTTP_11;
            response.into_parts()
        };
        let permit = call.permit.take();
        let reusable = !headers::is_event_stream(&parts.headers);
        let relay =
            Relay::new(body, link, call.guard, self.pool.clone(), permit, self.on_abort, reusable);
        let mut response = Response::from_parts(parts, Answer::Upstream(Some(Box::new(relay))));
        let kept = headers::end_to_end(std::mem::take(response.headers_mut()));
        *response.headers_mut() = kept;
        response
    }
}

/// The head as it goes up: end-to-end headers in their order and case, the target without a host.
fn upward(mut parts: Parts) -> Parts {
    parts.headers = headers::end_to_end(parts.headers);
    parts.version = Version::HTTP_11;
    if parts.uri.authority().is_some() {
        let path = parts.uri.path_and_query().cloned();
        parts.uri = path.map_or_else(|| Uri::from_static("/"), Uri::from);
    }
    parts
}

fn own_answer(status: StatusCode, body: String) -> Response<Answer> {
    let mut response = Response::new(Answer::own(body));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

fn capped_route(path: &str) -> &str {
    &path[..path.floor_char_boundary(ROUTE_BYTES)]
}
