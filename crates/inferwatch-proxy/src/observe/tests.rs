//! Unit tests of the observer.
