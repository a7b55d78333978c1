//! A small seeded generator, so that every random run can be run again.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

/// Xorshift64*. Good enough to choose faults and moments, and nothing else.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// A generator that always gives the same sequence for the same seed.
    pub fn new(seed: u64) -> Rng {
        // Seeds that are near each other must not start near each other, and 0 is a fixed point.
        Rng(seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// Any number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next_u64().checked_rem(bound).unwrap_or(0)
    }

    /// `true` with this probability (0 to 1).
    #[expect(clippy::cast_precision_loss, reason = "53 bits are asked for and fit")]
    pub fn chance(&mut self, probability: f64) -> bool {
        ((self.next_u64() >> 11) as f64) < probability * (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_sequence_and_another_seed_another() {
        let draw = |seed| {
            let mut rng = Rng::new(seed);
            [rng.next_u64(), rng.next_u64(), rng.below(10), rng.below(0)]
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        assert_ne!(draw(0)[0], 0);
    }

    #[test]
    fn chances_are_kept() {
        for (probability, low, high) in [(0.0, 0, 0), (0.25, 2200, 2800), (1.0, 10_000, 10_000)] {
            let mut rng = Rng::new(1);
            let hits = (0..10_000).filter(|_| rng.chance(probability)).count();
            assert!((low..=high).contains(&hits), "{probability}: {hits}");
        }
    }
}
