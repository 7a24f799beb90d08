//! `warpwright`: the command line.

fn main() {}
