//! From serving through draining to cut: what every request and connection asks of the proxy.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};

/// How far the proxy is on its way to the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub(crate) enum Stage {
    Serving,
    /// No new connections; running requests finish.
    Draining,
    /// The drain time ran out: what still runs is dropped.
    Cut,
}

/// Held by all that must be gone before the proxy is.
pub(crate) struct Lifecycle {
    stage: watch::Receiver<Stage>,
    _alive: mpsc::Sender<()>,
}

/// The one who decides.
pub(crate) struct Control {
    stage: watch::Sender<Stage>,
    all_gone: mpsc::Receiver<()>,
}

pub(crate) fn lifecycle() -> (Control, Arc<Lifecycle>) {
    let (tell, stage) = watch::channel(Stage::Serving);
    let (alive, all_gone) = mpsc::channel(1);
    (Control { stage: tell, all_gone }, Arc::new(Lifecycle { stage, _alive: alive }))
}

impl Control {
    pub(crate) fn enter(&self, stage: Stage) {
        self.stage.send_replace(stage);
    }

    /// Completes when every holder of the lifecycle is gone.
    pub(crate) async fn all_gone(&mut self) {
        // Nothing is ever sent: the channel only ends.
        let _ = self.all_gone.recv().await;
    }
}

impl Lifecycle {
    pub(crate) fn is_cut(&self) -> bool {
        *self.stage.borrow() == Stage::Cut
    }

    /// Completes when `stage` is reached.
    pub(crate) async fn reached(&self, stage: Stage) {
        let _ = self.stage.clone().wait_for(|now| *now >= stage).await;
    }
}
