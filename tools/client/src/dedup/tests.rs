use std::fmt;

use super::*;

/// The act of a test before each save of a filter.
#[derive(Clone, Default)]
pub(super) struct BeforeSave(pub(super) Option<Arc<dyn Fn() + Send + Sync>>);

impl fmt::Debug for BeforeSave {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BeforeSave")
    }
}

impl DedupBuilder {
    /// Sets the act of a test before each save.
    pub(crate) fn before_save(mut self, act: impl Fn() + Send + Sync + 'static) -> DedupBuilder {
        self.before_save = BeforeSave(Some(Arc::new(act)));
        self
    }
}
