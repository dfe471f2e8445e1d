//! A table for looking things up and for nothing else: it is never walked where order could show (INV-9).

/// Keys to values, without an order.
#[expect(clippy::disallowed_types, reason = "this module is the one exception: no output depends on its order")]
pub(crate) type Lookup<K, V> = std::collections::HashMap<K, V>;
