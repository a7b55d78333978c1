//! Upgrades (WebSocket and its kind): once both sides agree, bytes pass untouched and unread.

use std::io;
use std::time::Instant;

use http::header::{self, HeaderMap};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;

use crate::answer::Answer;
use crate::forward::Call;
use crate::headers;
use crate::observe::BodyEnd;
use crate::pool::Pool;
use crate::upload::Upload;
use crate::watch::Guard;

/// Why an upgrade did not even get an answer.
pub(crate) enum Failure {
    Connect(io::Error),
    Unanswered(hyper::Error),
}

/// The client's half of an upgrade, kept beside the answer until the answer is known.
#[derive(Clone)]
struct ClientSide(OnUpgrade);

/// Asks the upstream, over a connection of its own, which hyper drives: it may leave HTTP.
pub(crate) async fn request(
    pool: &Pool,
    guard: &Guard,
    mut request: Request<Incoming>,
) -> Result<Response<Incoming>, Failure> {
    let client = hyper::upgrade::on(&mut request);
    let (mut parts, body) = request.into_parts();
    let asked = parts.headers.get(header::UPGRADE).cloned();
    parts.headers = headers::end_to_end(parts.headers);
    if let Some(protocol) = asked {
        announce(&mut parts.headers, protocol);
    }
    let upload = Upload::stream(body, guard.watch().clone());
    let (conn, mut sender) = pool.connect().await.map_err(Failure::Connect)?.into_parts();
    tokio::spawn(conn.with_upgrades());
    let sent = sender.send_request(Request::from_parts(parts, upload));
    let mut response = sent.await.map_err(Failure::Unanswered)?;
    response.extensions_mut().insert(ClientSide(client));
    Ok(response)
}

fn announce(headers: &mut HeaderMap, protocol: http::HeaderValue) {
    headers.insert(header::CONNECTION, http::HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, protocol);
}

/// Passes `101` on and joins the two sides once both have left HTTP.
pub(crate) fn switch(call: Call, mut response: Response<Incoming>) -> Response<Answer> {
    let upstream = hyper::upgrade::on(&mut response);
    let (mut parts, _) = response.into_parts();
    if let Some(ClientSide(client)) = parts.extensions.remove() {
        tokio::spawn(join(call, client, upstream));
    }
    let protocol = parts.headers.get(header::UPGRADE).cloned();
    parts.headers = headers::end_to_end(parts.headers);
    if let Some(protocol) = protocol {
        announce(&mut parts.headers, protocol);
    }
    Response::from_parts(parts, Answer::own(""))
}

async fn join(mut call: Call, client: OnUpgrade, upstream: OnUpgrade) {
    let (how, error) = match tokio::try_join!(client, upstream) {
        Ok((client, upstream)) => pass(&call, client, upstream).await,
        Err(error) => (BodyEnd::Cut, Some(format!("the upgrade failed: {error}"))),
    };
    call.guard.conclude(how, error);
}

async fn pass(call: &Call, client: Upgraded, upstream: Upgraded) -> (BodyEnd, Option<String>) {
    let (mut client, mut upstream) = (TokioIo::new(client), TokioIo::new(upstream));
    let copied = tokio::select! {
        copied = tokio::io::copy_bidirectional(&mut client, &mut upstream) => copied,
        () = call.guard.cut() => Err(io::Error::other("the drain time ran out")),
    };
    call.guard.watch().request_end(Instant::now());
    match copied {
        Ok((bytes_in, bytes_out)) => {
            call.guard.watch().tunnelled(bytes_in, bytes_out);
            (BodyEnd::Complete, None)
        }
        Err(error) => (BodyEnd::Cut, Some(format!("the tunnel broke: {error}"))),
    }
}
