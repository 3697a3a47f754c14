//! Files: to be read, to be listed, to be written to, and the one that is allowed.

use std::path::{Path, PathBuf};

use ledger::bytes::hash::to_hex;

use super::{Seeds, fresh};
use crate::measure::plant::{self, Canary};
use crate::measure::{Instrument, PlantError, Planting};

/// Longest beginning of a file that counts as its secret.
const BEGINNING: usize = 32;

impl Seeds<'_> {
    /// Files to be read, trees to be listed, files to be written to, in each place.
    pub(super) fn files(&mut self) -> Result<(), PlantError> {
        for folder in self.folders.clone() {
            let (content, name, text) = (fresh()?, fresh()?, fresh()?);
            let file = folder.join("secret");
            let made = plant::file(&file, &content, 0o644);
            if self.did("plant", &file, made).is_some() && self.path("read", &file).is_some() {
                self.secret("read", &file, &content);
                self.instruments
                    .push(Instrument::File("read", file, content));
            }
            let tree = folder.join("tree");
            let file = tree.join(&name);
            let made = plant::folder(&tree, 0o755).and_then(|()| plant::file(&file, &name, 0o644));
            if self.did("plant", &tree, made).is_some() && self.path("tree", &tree).is_some() {
                self.secret("tree", &tree, &name);
                self.instruments.push(Instrument::File("tree", file, name));
            }
            let around = folder.join("written");
            let planted = Canary::plant(around.clone(), &text);
            if let Some(canary) = self.did("plant", &around, planted)
                && self.path("write", &canary.file).is_some()
            {
                self.instruments.push(Instrument::Canary(canary));
            }
        }
        Ok(())
    }

    /// Decoys in the folders of the evidence, and the beginning of its files.
    pub(super) fn evidence(&mut self, decoys: &[PathBuf]) -> Result<(), PlantError> {
        for folder in decoys {
            let content = fresh()?;
            let file = folder.join("secret");
            let made =
                plant::folder(folder, 0o755).and_then(|()| plant::file(&file, &content, 0o644));
            if self.did("plant", &file, made).is_some() && self.path("evidence", &file).is_some() {
                self.secret("evidence", &file, &content);
                self.instruments
                    .push(Instrument::File("evidence", file, content));
            }
        }
        for file in &self.places.evidence {
            if file.is_dir() {
                continue;
            }
            let read = std::fs::read(file);
            let Some(bytes) = self.did("read", file, read) else {
                continue;
            };
            let beginning = bytes.get(..BEGINNING).unwrap_or(&bytes);
            if !beginning.is_empty() && self.path("evidence", file).is_some() {
                let mut needles = vec![to_hex(beginning)];
                let text = String::from_utf8(beginning.to_vec()).ok();
                needles.extend(text.filter(|text| !text.contains(char::is_control)));
                self.secrets.push(Planting {
                    of: "evidence",
                    needles,
                    place: file.display().to_string(),
                });
            }
        }
        Ok(())
    }

    /// The readable twin, in the folder that the workload sees.
    pub(super) fn allow(&mut self, folder: &Path) -> Result<(), PlantError> {
        let content = fresh()?;
        let file = folder.join("allowed");
        let made = plant::folder(folder, 0o755).and_then(|()| plant::file(&file, &content, 0o644));
        if self.did("plant", &file, made).is_none() {
            return Ok(());
        }
        let (host, inside) = &self.places.workload;
        let seen = file.strip_prefix(host).map(|rest| inside.join(rest));
        if let Ok(seen) = seen
            && self.path("allowed", &seen).is_some()
        {
            self.allowed = Some(content);
        }
        Ok(())
    }
}
