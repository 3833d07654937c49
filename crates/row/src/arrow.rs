//! Types and values to and from Arrow.
