//! What a check of the doctor found.

use std::fmt;

use serde::Serialize;

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// As it should be.
    Ok,
    /// Something works less well, or may fail later.
    Warning,
    /// Building, linking or running fails.
    Error,
}

/// The outcome of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The check's name; stable.
    pub id: &'static str,
    /// How it ended.
    pub status: Status,
    /// What is there.
    pub found: String,
    /// What to do; none where nothing is amiss.
    pub remedy: Option<String>,
}

impl Finding {
    pub(super) fn ok(id: &'static str, found: impl Into<String>) -> Self {
        Self {
            id,
            status: Status::Ok,
            found: found.into(),
            remedy: None,
        }
    }

    pub(super) fn warning(
        id: &'static str,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            id,
            status: Status::Warning,
            found: found.into(),
            remedy: Some(remedy.into()),
        }
    }

    pub(super) fn error(
        id: &'static str,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            status: Status::Error,
            ..Self::warning(id, found, remedy)
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match self.status {
            Status::Ok => "ok",
            Status::Warning => "WARNING",
            Status::Error => "ERROR",
        };
        write!(f, "{mark:<8} {:<18} {}", self.id, self.found)?;
        if let Some(remedy) = &self.remedy {
            write!(f, "\n         {:<18} -> {remedy}", "")?;
        }
        Ok(())
    }
}
