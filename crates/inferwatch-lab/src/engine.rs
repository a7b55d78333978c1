//! The work of a fake model server: slots that are threads, one FIFO queue, cancelling.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::Sender;

use crate::cost::Cost;
use crate::script::Step;

/// What a request took, as the server itself would report it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Timings {
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Tokens generated.
    pub completion_tokens: u64,
    /// Wait for a slot.
    pub queue: Duration,
    /// Time to evaluate the prompt.
    pub prompt: Duration,
    /// Time from the end of the prompt to the last token.
    pub generate: Duration,
}

/// How far a job is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Progress {
    /// A slot was given to it.
    Started,
    /// The token of this number (from 0) is there.
    Token(u64),
    /// All is done.
    Finished(Timings),
}

/// What to do on the wire about a progress.
#[derive(Debug, Default)]
pub(crate) struct Said {
    pub(crate) steps: Vec<Step>,
    /// Whether these are the last steps, though there may be work left.
    pub(crate) is_last: bool,
}

/// One request's work. The job is cancelled when nobody takes its steps any more.
pub(crate) struct Job {
    pub(crate) prompt_tokens: u64,
    pub(crate) completion_tokens: u64,
    pub(crate) speak: Box<dyn FnMut(Progress) -> Said + Send>,
    pub(crate) out: Sender<Step>,
}

/// Counts over the life of an engine.
#[derive(Debug, Default)]
pub struct Counts {
    /// Jobs waiting for a slot.
    queued: AtomicUsize,
    /// Slots at work.
    busy: AtomicUsize,
    cancelled: AtomicUsize,
    completed: AtomicUsize,
}

impl Counts {
    /// Slots at work now.
    pub fn busy_count(&self) -> usize {
        self.busy.load(Ordering::Relaxed)
    }

    /// Jobs that wait for a slot now.
    pub fn queued_count(&self) -> usize {
        self.queued.load(Ordering::Relaxed)
    }

    /// Jobs that were given up because their client had left.
    pub fn cancelled_count(&self) -> usize {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Jobs that came to their end.
    pub fn completed_count(&self) -> usize {
        self.completed.load(Ordering::Relaxed)
    }
}

/// Slots and their queue. Dropping it lets running jobs end and takes no more.
#[derive(Debug)]
pub(crate) struct Engine {
    jobs: mpsc::Sender<(Job, Instant)>,
    pub(crate) counts: Arc<Counts>,
}

impl Engine {
    /// Starts `slots` threads.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub(crate) fn start(slots: usize, cost: Cost) -> io::Result<Engine> {
        cost.calibrate();
        let (jobs, queue) = mpsc::channel();
        let queue = Arc::new(Mutex::new(queue));
        let counts = Arc::new(Counts::default());
        for _ in 0..slots.max(1) {
            let slot = Slot { queue: Arc::clone(&queue), counts: Arc::clone(&counts), cost };
            thread::Builder::new().name("slot".to_owned()).spawn(move || slot.work())?;
        }
        Ok(Engine { jobs, counts })
    }

    pub(crate) fn submit(&self, job: Job) {
        self.counts.queued.fetch_add(1, Ordering::Relaxed);
        // Fails only if every slot has panicked; the dropped job then ends the answer.
        let _ = self.jobs.send((job, Instant::now()));
    }
}

struct Slot {
    queue: Arc<Mutex<mpsc::Receiver<(Job, Instant)>>>,
    counts: Arc<Counts>,
    cost: Cost,
}

impl Slot {
    fn work(&self) {
        while let Some((mut job, queued_at)) = self.next() {
            self.counts.busy.fetch_add(1, Ordering::Relaxed);
            self.counts.queued.fetch_sub(1, Ordering::Relaxed);
            let ended = match self.run(&mut job, queued_at) {
                Some(()) => &self.counts.completed,
                None => &self.counts.cancelled,
            };
            self.counts.busy.fetch_sub(1, Ordering::Relaxed);
            ended.fetch_add(1, Ordering::Relaxed);
            drop(job);
        }
    }

    fn next(&self) -> Option<(Job, Instant)> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
    }

    fn run(&self, job: &mut Job, queued_at: Instant) -> Option<()> {
        let started = Instant::now();
        if !tell(job, Progress::Started)? {
            return Some(());
        }
        self.pay(job, self.cost.per_prompt_token, job.prompt_tokens)?;
        let prompt = started.elapsed();
        for index in 0..job.completion_tokens {
            // The first token comes free with the prompt.
            if index > 0 {
                self.pay(job, self.cost.per_token, 1)?;
            }
            if !tell(job, Progress::Token(index))? {
                return Some(());
            }
        }
        let timings = Timings {
            prompt_tokens: job.prompt_tokens,
            completion_tokens: job.completion_tokens,
            queue: started - queued_at,
            prompt,
            generate: started.elapsed().saturating_sub(prompt),
        };
        tell(job, Progress::Finished(timings)).map(drop)
    }

    fn pay(&self, job: &Job, per_token: Duration, tokens: u64) -> Option<()> {
        let amount = per_token.saturating_mul(u32::try_from(tokens).unwrap_or(u32::MAX));
        self.cost.pay(amount, || job.out.is_closed()).then_some(())
    }
}

/// `None`: the client left. `false`: there is no more to say.
fn tell(job: &mut Job, progress: Progress) -> Option<bool> {
    if job.out.is_closed() {
        return None;
    }
    let said = (job.speak)(progress);
    for step in said.steps {
        job.out.blocking_send(step).ok()?;
    }
    Some(!said.is_last)
}
