//! The result of a check of the doctor.

use std::fmt;

use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// All is well.
    Ok,
    /// Something is degraded, or may fail later.
    Warning,
    /// Building, linking or running fails.
    Error,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The check's name; it does not change between versions.
    pub id: &'static str,
    pub status: Status,
    /// What the check found.
    pub found: String,
    /// What to do; `None` if all is well.
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
