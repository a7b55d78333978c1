//! What a token costs a fake model server: real arithmetic on a core, or sleep.

use std::hint::black_box;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A cost is paid in slices of at most this time, so that a cancelled job stops soon.
const SLICE: Duration = Duration::from_millis(2);

/// How a cost is paid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payment {
    /// A fixed amount of arithmetic: takes longer when the cores are contended, as a model does.
    Cpu,
    /// Sleep: takes no CPU.
    Sleep,
}

/// Cost of the two phases of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// Per token of the prompt.
    pub per_prompt_token: Duration,
    /// Per generated token.
    pub per_token: Duration,
    /// How it is paid.
    pub payment: Payment,
}

impl Cost {
    /// Costs nothing.
    pub const FREE: Cost = Cost {
        per_prompt_token: Duration::ZERO,
        per_token: Duration::ZERO,
        payment: Payment::Sleep,
    };

    /// Measures this machine now, so that the first request does not wait for it.
    pub(crate) fn calibrate(&self) {
        if self.payment == Payment::Cpu {
            rounds_per_second();
        }
    }

    /// Pays `amount`, asking `cancelled` between slices; `false` if it was cancelled.
    pub(crate) fn pay(&self, amount: Duration, cancelled: impl Fn() -> bool) -> bool {
        let mut left = amount;
        while !left.is_zero() {
            if cancelled() {
                return false;
            }
            let slice = left.min(SLICE);
            match self.payment {
                Payment::Cpu => burn(slice),
                Payment::Sleep => std::thread::sleep(slice),
            }
            left -= slice;
        }
        true
    }
}

fn burn(cpu: Duration) {
    rounds(cpu.as_secs_f64() * rounds_per_second());
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positive, far below 2^53"
)]
fn rounds(count: f64) {
    let mut sum = 1.0_f32;
    for _ in 0..count as u64 {
        sum = black_box(sum.mul_add(0.999, 0.001));
    }
    black_box(sum);
}

// The fastest of several tries: the others were disturbed.
fn rounds_per_second() -> f64 {
    const TRIES: u32 = 20;
    const ROUNDS: f64 = 200_000.0;
    static RATE: OnceLock<f64> = OnceLock::new();
    *RATE.get_or_init(|| {
        let timed = |_| {
            let start = Instant::now();
            rounds(ROUNDS);
            start.elapsed()
        };
        let fastest = (0..TRIES).map(timed).min().unwrap_or(SLICE);
        ROUNDS / fastest.as_secs_f64().max(1e-9)
    })
}
