//! No code: a set of dependencies that makes every selection of packages build third-party crates
//! with the same features. Its manifest says why.
