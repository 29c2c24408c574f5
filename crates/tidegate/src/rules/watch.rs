//! Tells when to look at the rule file again.
//!
//! It is the directory that is watched and not the file: editors rename a new file over the old one,
//! Kubernetes swaps a symlink beside it, and a file that was deleted comes back under its name. A watch
//! is only a hint; the slow poll heals whatever it misses.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use notify::event::{AccessKind, AccessMode, RemoveKind};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;

use super::source::is_rule_file;

/// The watches that one rule path needs.
pub(super) struct Watch {
    /// Absolute.
    path: PathBuf,
    watcher: Option<RecommendedWatcher>,
    /// What is watched, and which directory stood under that name then.
    watched: HashMap<PathBuf, Identity>,
    /// Set when a watched directory may have been removed: its watch is dead, even if a directory of the
    /// same name and the same inode is there by now.
    lost: Arc<AtomicBool>,
}

/// Device and inode.
type Identity = (u64, u64);

impl Watch {
    /// Watches around `path`, and wakes `dirty` when something happened that may concern it.
    pub(super) fn new(path: PathBuf, dirty: Arc<Notify>) -> Self {
        let lost = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&lost);
        let name = path.file_name().map(OsString::from);
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| match event {
            Ok(event) => {
                if removes_directory(&event) {
                    flag.store(true, Ordering::Release);
                }
                if concerns(&event, name.as_deref().map(Path::new)) {
                    dirty.notify_one();
                }
            }
            Err(error) => {
                tracing::warn!(%error, "watching the rule file: an event was lost");
                flag.store(true, Ordering::Release);
                dirty.notify_one();
            }
        });
        let watcher = watcher
            .inspect_err(
                |error| tracing::warn!(%error, "the rule file cannot be watched; it is polled instead"),
            )
            .ok();
        Self { path, watcher, watched: HashMap::new(), lost }
    }

    /// No watch at all: only polls.
    pub(super) fn off(path: PathBuf) -> Self {
        Self { path, watcher: None, watched: HashMap::new(), lost: Arc::default() }
    }

    /// Puts watches on the directories that matter now. Blocks. Comes before the file is read, so that
    /// no change falls between.
    pub(super) fn refresh(&mut self) {
        let Some(watcher) = &mut self.watcher else { return };
        if self.lost.swap(false, Ordering::AcqRel) {
            for (directory, _) in self.watched.drain() {
                // Dead already when the directory is gone.
                let _ = watcher.unwatch(&directory);
            }
        }
        let wanted = directories(&self.path);
        self.watched.retain(|directory, identity| {
            let keep = wanted.get(directory) == Some(identity);
            if !keep {
                let _ = watcher.unwatch(directory);
            }
            keep
        });
        for (directory, identity) in wanted {
            if self.watched.contains_key(&directory) {
                continue;
            }
            match watcher.watch(&directory, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    self.watched.insert(directory, identity);
                }
                Err(error) => {
                    tracing::debug!(%error, directory = %directory.display(), "not watched, only polled");
                }
            }
        }
    }

    /// Whether changes are seen by a watch; if not, polls must be quick.
    pub(super) fn is_watching(&self) -> bool {
        !self.watched.is_empty()
    }
}

/// The directory that holds the path, the path itself if it is a directory, and where it really lies if
/// it is a symlink.
fn directories(path: &Path) -> HashMap<PathBuf, Identity> {
    let mut wanted: Vec<PathBuf> = path.parent().map(Path::to_path_buf).into_iter().collect();
    if path.is_dir() {
        wanted.push(path.to_path_buf());
    }
    if let Ok(real) = path.canonicalize()
        && let Some(parent) = real.parent()
    {
        wanted.push(parent.to_path_buf());
    }
    let identified = |directory: PathBuf| identity(&directory).map(|identity| (directory, identity));
    wanted.into_iter().filter_map(identified).collect()
}

#[cfg(unix)]
fn identity(directory: &Path) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt as _;
    directory.metadata().ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

#[cfg(not(unix))]
fn identity(directory: &Path) -> Option<Identity> {
    directory.metadata().ok().map(|_| (0, 0))
}

fn removes_directory(event: &Event) -> bool {
    match event.kind {
        EventKind::Remove(kind) => kind != RemoveKind::File,
        _ => event.need_rescan(),
    }
}

/// Whether an event may concern the rules. The directory may hold a database that is written all the
/// time, and reading the rule file is an event too: neither must wake anybody.
fn concerns(event: &Event, source: Option<&Path>) -> bool {
    if event.need_rescan() {
        return true;
    }
    if let EventKind::Access(access) = event.kind
        && access != AccessKind::Close(AccessMode::Write)
    {
        return false;
    }
    let concerned = |path: &PathBuf| {
        let Some(name) = path.file_name().map(Path::new) else { return true };
        // `..data` is what Kubernetes swaps.
        Some(name) == source || is_rule_file(name) || name.as_os_str().as_encoded_bytes().starts_with(b"..")
    };
    removes_directory(event) || event.paths.iter().any(concerned)
}

#[cfg(test)]
mod tests;
