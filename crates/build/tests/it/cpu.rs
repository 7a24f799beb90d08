//! Builds for the host.
