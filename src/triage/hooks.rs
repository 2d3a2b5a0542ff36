//! The hooks as they stand: which there are, and what became of what they are to be told.
//!
//! Of an address nothing is shown but scheme and host.

use serde::Serialize;
use utoipa::ToSchema;

use super::{
    Error, Result,
    lanes::{self, LanePicture},
};
use crate::{
    config::{HookConfig, Rate, RedisUrl, SecretSource},
    event::Lane,
    ledger::TriageLedger,
};

/// A hook as it stands, as `-o json` prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct HookShown {
    /// Its name.
    pub name: String,
    /// The body's form.
    pub format: &'static str,
    /// Scheme and host.
    pub address: String,
    /// Globs on event names.
    pub events: Vec<String>,
    /// Single events in a period, such as `60/m`.
    pub rate: String,
    /// How it stands in each source.
    pub sources: Vec<LanesShown>,
}

/// A hook's lanes in one source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct LanesShown {
    /// The source's name.
    pub source: String,
    /// Both lanes.
    pub lanes: Vec<LanePicture>,
}

/// How these hooks stand in these sources.
pub async fn hooks(configured: &[HookConfig], sources: &[&dyn TriageLedger]) -> Result<Vec<HookShown>> {
    let mut items = Vec::with_capacity(configured.len());
    for hook in configured {
        let mut shown = Vec::with_capacity(sources.len());
        for &ledger in sources {
            shown.push(lanes_of(ledger, hook).await?);
        }
        items.push(HookShown {
            name: hook.name.clone(),
            format: hook.format.as_str(),
            address: origin_of(&hook.url),
            events: hook.events.clone(),
            rate: rate_of(hook.rate),
            sources: shown,
        });
    }
    Ok(items)
}

/// How a hook stands in a source: both lanes of it.
pub async fn lanes_of(ledger: &dyn TriageLedger, hook: &HookConfig) -> Result<LanesShown> {
    let mut lanes = Vec::new();
    for lane in Lane::ALL {
        let picture = lanes::picture(ledger, &hook.name, &hook.fingerprint, lane).await;
        lanes.push(picture.map_err(Error::of(ledger))?);
    }
    Ok(LanesShown { source: ledger.name().to_owned(), lanes })
}

/// Scheme and host of a URL, or its hosts and what they are asked for; nothing else of it may be shown.
pub fn origin_of(url: &SecretSource) -> String {
    let Ok(secret) = url.read() else { return "(its file cannot be read)".to_owned() };
    if let Ok(url) = RedisUrl::read(secret.reveal()) {
        return url.origin();
    }
    match url::Url::parse(secret.reveal()) {
        Ok(url) => match (url.host(), url.port()) {
            (Some(host), Some(port)) => format!("{}://{host}:{port}", url.scheme()),
            (Some(host), None) => format!("{}://{host}", url.scheme()),
            (None, _) => format!("{}:", url.scheme()),
        },
        Err(_) => "(no URL)".to_owned(),
    }
}

/// A rate as the configuration has it: `60/m`.
pub fn rate_of(rate: Rate) -> String {
    match rate {
        Rate::Unlimited => "unlimited".to_owned(),
        Rate::Limited { events, per } => match per.as_secs() {
            1 => format!("{events}/s"),
            60 => format!("{events}/m"),
            3_600 => format!("{events}/h"),
            seconds => format!("{events}/{seconds}s"),
        },
    }
}
