//! A fake model server: routes, slots, costs and faults on top of the raw upstream.

use std::io;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::answer::{Answer, whole_head};
use crate::cost::Cost;
use crate::dialect::{Ask, Context, Dialect, Route, Voice, route};
use crate::engine::{Counts, Engine, Job};
use crate::fault::{self, Fault};
pub use crate::instant::Instant;
use crate::instant::Prebuilt;
use crate::observed::Request;
use crate::raw::{Options, RawUpstream};
use crate::script::{Script, Step};

/// Steps that may wait for a slow reader before its slot stands still.
const STEPS_AHEAD: usize = 32;

/// Settings of a fake model server.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where it listens; port 0 for a free one.
    pub listen: SocketAddr,
    /// What it speaks.
    pub dialect: Dialect,
    /// Requests worked on at once; the others wait in a FIFO queue without a head.
    pub slots: usize,
    /// What tokens cost.
    pub cost: Cost,
    /// Fault of requests that do not choose one by the header `x-lab-fault`.
    pub fault: Fault,
    /// Name of its model.
    pub model: String,
    /// Length of an embedding.
    pub dimensions: usize,
    /// Answer every POST from a prebuilt answer, without slots, costs or faults.
    pub instant: Option<Instant>,
    /// Close a connection after so many requests.
    pub requests_per_connection: Option<usize>,
    /// Close a connection that waits this long for its next request.
    pub idle_timeout: Option<Duration>,
    /// Keep the requests for the tests to look at.
    pub keep_requests: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            dialect: Dialect::LlamaCpp,
            slots: 2,
            cost: Cost::FREE,
            fault: Fault::None,
            model: "models/lab.gguf".to_owned(),
            dimensions: 384,
            instant: None,
            requests_per_connection: None,
            idle_timeout: None,
            keep_requests: false,
        }
    }
}

/// A running fake model server. Dropping it closes every connection.
#[derive(Debug)]
pub struct FakeUpstream {
    raw: RawUpstream,
    counts: Arc<Counts>,
}

impl FakeUpstream {
    /// Starts it.
    ///
    /// # Errors
    /// The port cannot be had, or a slot's thread not be started.
    pub fn start(settings: Settings) -> io::Result<FakeUpstream> {
        let engine = Engine::start(settings.slots, settings.cost)?;
        let counts = Arc::clone(&engine.counts);
        let options = Options {
            keep_requests: settings.keep_requests,
            idle_timeout: settings.idle_timeout,
            ..Options::default()
        };
        let listen = settings.listen;
        let server = Server::new(settings, engine);
        let raw = RawUpstream::start_with(listen, options, move |request| server.answer(request))?;
        Ok(FakeUpstream { raw, counts })
    }

    /// Its work so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Returns when no request is queued or worked on.
    pub async fn idle(&self) {
        while self.counts.busy_count() + self.counts.queued_count() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Stops listening, closes every connection and says where it listened.
    pub async fn stop(self) -> SocketAddr {
        self.raw.stop().await
    }
}

impl Deref for FakeUpstream {
    type Target = RawUpstream;

    fn deref(&self) -> &RawUpstream {
        &self.raw
    }
}

struct Server {
    settings: Settings,
    engine: Engine,
    prebuilt: Option<Prebuilt>,
}

impl Server {
    fn new(settings: Settings, engine: Engine) -> Server {
        let built = |instant| Prebuilt::new(settings.dialect, &settings.model, instant);
        let prebuilt = settings.instant.and_then(built);
        Server { settings, engine, prebuilt }
    }

    fn answer(&self, request: &Request) -> Script {
        let close = self.closes_after(request);
        let post = request.head.method == "POST";
        if let Some(prebuilt) = self.prebuilt.as_ref().filter(|_| post) {
            let script = prebuilt.answer(&request.body);
            return if close { script.fin() } else { script };
        }
        match route(self.settings.dialect, &request.head.method, request.path()) {
            Some(Route::Work(voice)) => self.work(request, voice, close),
            Some(Route::Info(body)) => self.info(request, body, close),
            Some(Route::Slots) => self.info(request, &self.slots(), close),
            None => self.refuse(404, "File Not Found", close),
        }
    }

    fn closes_after(&self, request: &Request) -> bool {
        let limit = self.settings.requests_per_connection;
        request.head.headers.lists("connection", "close")
            || limit.is_some_and(|limit| request.number + 1 >= limit)
    }

    fn work(&self, request: &Request, voice: &'static dyn Voice, close: bool) -> Script {
        let fault = match self.fault(request) {
            Ok(fault) => fault,
            Err(message) => return self.refuse(400, &message, close),
        };
        match fault {
            Fault::NeverAnswers => return Script::new().hang(),
            Fault::Status(status) => return self.refuse(status, "the lab's error", close),
            _ => {}
        }
        if request.body_bytes > request.body.len() as u64 {
            return self.refuse(413, "the body is too large", close);
        }
        let ask = match Ask::read(&request.body) {
            Ok(ask) => ask,
            Err(message) => return self.refuse(400, &message, close),
        };
        let script = match fault {
            Fault::StallBeforeHead(time) => Script::new().wait(time),
            _ => Script::new(),
        };
        script.then(self.submit(ask, voice, fault, close))
    }

    fn fault(&self, request: &Request) -> Result<Fault, String> {
        match request.head.headers.get(fault::HEADER) {
            Some(text) => text.parse().map_err(|e: fault::UnknownFault| e.to_string()),
            None => Ok(self.settings.fault),
        }
    }

    fn submit(&self, ask: Ask, voice: &'static dyn Voice, fault: Fault, close: bool) -> Step {
        let (out, steps) = mpsc::channel(STEPS_AHEAD);
        let prompt_tokens = ask.prompt_tokens;
        let completion_tokens = if voice.generates() { ask.completion_tokens() } else { 0 };
        let Settings { dialect, ref model, dimensions, .. } = self.settings;
        let context = Context { dialect, model: model.clone(), dimensions, ask };
        let mut answer = Answer::new(voice, context, fault, close);
        let speak = Box::new(move |progress| answer.speak(progress));
        self.engine.submit(Job { prompt_tokens, completion_tokens, speak, out });
        Step::Relay(steps)
    }

    fn info(&self, request: &Request, body: &str, close: bool) -> Script {
        let shown = if request.head.method == "HEAD" { "" } else { body };
        self.document(200, body.len(), shown, close)
    }

    fn refuse(&self, status: u16, message: &str, close: bool) -> Script {
        let body = self.settings.dialect.error_body(status, message);
        self.document(status, body.len(), &body, close)
    }

    fn document(&self, status: u16, length_bytes: usize, body: &str, close: bool) -> Script {
        let mut bytes = whole_head(self.settings.dialect, status, length_bytes as u64, &[], close);
        bytes.extend_from_slice(body.as_bytes());
        let script = Script::new().send(bytes);
        if close { script.fin() } else { script }
    }

    fn slots(&self) -> String {
        let busy = self.engine.counts.busy_count();
        let slot = |id| format!(r#"{{"id":{id},"n_ctx":4096,"is_processing":{}}}"#, id < busy);
        format!("[{}]", (0..self.settings.slots).map(slot).collect::<Vec<_>>().join(","))
    }
}
