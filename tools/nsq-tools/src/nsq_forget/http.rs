//! The HTTP interface, with the answers of bitly's `goforget`:
//!
//! ```text
//!   /incr?distribution=colours&field=red&field=blue&N=2   OK
//!   /get?distribution=colours&field=red     {"status_code":200,"status_txt":"","data":{
//!   /dist?distribution=colours               "distribution":"colours","Z":3,"T":1700000000,
//!   /nmostprobable?distribution=colours&N=10 "data":[{"bin":"red","count":2,"p":0.67}],
//!                                            "rate":0.02,"prune":true}}
//! ```
//!
//! `/dbsize` and `/dbstats` describe the whole table. `/ping` answers `OK`.

use std::str::FromStr;
use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use parking_lot::Mutex;
use serde::Serialize;
use wire::json_object;

use super::table::{ForgetTable, NAME_BYTES_MAX, Wanted};
use super::table::{Reading, Seconds};
use crate::process::refuse_other_sites;

/// The bins of `/nmostprobable` without `N`.
const MOST_PROBABLE: usize = 10;

/// The parts that all requests share.
#[derive(Clone)]
pub(super) struct Api {
    pub(super) table: Arc<Mutex<ForgetTable>>,
    /// The distribution of a request that names none.
    pub(super) distribution: Arc<str>,
    /// Returns the time.
    pub(super) now: fn() -> Seconds,
}

/// The parameters of a request, in their order. Several may have one name.
struct Parameters(Vec<(String, String)>);

/// A wrong request: its code.
struct Refused(StatusCode, &'static str);

type Parsed = Result<Query<Vec<(String, String)>>, QueryRejection>;

/// Returns the service. Every endpoint accepts any method, as in the original. Pages of other sites count nothing, if the
/// browser marks their requests.
pub(super) fn router(api: Api) -> Router {
    Router::new()
        .route("/incr", any(incr))
        .route_layer(from_fn(refuse_other_sites))
        .route("/get", any(get))
        .route("/dist", any(dist))
        .route("/nmostprobable", any(nmostprobable))
        .route("/dbsize", any(dbsize))
        .route("/dbstats", any(dbstats))
        .route("/ping", any(async || "OK"))
        .fallback(async || Refused(StatusCode::NOT_FOUND, "NOT_FOUND"))
        .with_state(api)
}

async fn incr(State(api): State<Api>, query: Parsed) -> Result<&'static str, Refused> {
    let parameters = Parameters::new(query)?;
    let distribution = parameters.distribution(&api.distribution)?;
    let fields = parameters.fields()?;
    let n = parameters.n::<u32>(1, "COULDNT_PARSE_N")?;
    let now = (api.now)();
    let mut table = api.table.lock();
    for field in fields {
        table.add(distribution, field, u64::from(n), now);
    }
    Ok("OK")
}

async fn get(State(api): State<Api>, query: Parsed) -> Result<Response, Refused> {
    let parameters = Parameters::new(query)?;
    let distribution = parameters.distribution(&api.distribution)?;
    let fields = parameters.fields()?;
    api.read(&parameters, distribution, Wanted::Bins(&fields))
}

async fn dist(State(api): State<Api>, query: Parsed) -> Result<Response, Refused> {
    let parameters = Parameters::new(query)?;
    let distribution = parameters.distribution(&api.distribution)?;
    api.read(&parameters, distribution, Wanted::Largest(usize::MAX))
}

async fn nmostprobable(State(api): State<Api>, query: Parsed) -> Result<Response, Refused> {
    let parameters = Parameters::new(query)?;
    let distribution = parameters.distribution(&api.distribution)?;
    let most = parameters.n(MOST_PROBABLE, "INVALID_ARG_N")?;
    api.read(&parameters, distribution, Wanted::Largest(most))
}

async fn dbsize(State(api): State<Api>) -> Response {
    answer(api.table.lock().distributions())
}

async fn dbstats(State(api): State<Api>) -> Response {
    let table = api.table.lock();
    answer(json_object! {
        distributions: table.distributions(),
        bins: table.bins(),
        rate: table.rate,
        #[serde(flatten)]
        counters: table.counters,
    })
}

impl Api {
    fn read(
        &self,
        parameters: &Parameters,
        distribution: &str,
        wanted: Wanted<'_>,
    ) -> Result<Response, Refused> {
        let now = (self.now)();
        let mut table = self.table.lock();
        let rate = table.rate;
        // The original forgets by the rate of the request. Here counts have one rate.
        match parameters.get("rate").map(str::parse::<f64>) {
            None => {}
            Some(Ok(wanted)) if wanted == rate => {}
            Some(Ok(_)) => return Err(Refused(StatusCode::BAD_REQUEST, "RATE_IS_FIXED")),
            Some(Err(_)) => return Err(Refused(StatusCode::BAD_REQUEST, "CANNOT_PARSE_RATE")),
        }
        let Reading { z, bins } = table.read(distribution, wanted, now);
        drop(table);
        let p = |count: u64| match z {
            0 => 0.0,
            z => count as f64 / z as f64,
        };
        let bins = bins.into_iter();
        let data = bins.map(|(bin, count)| json_object! { bin, count, p: p(count) });
        Ok(answer(json_object! {
            distribution,
            #[serde(rename = "Z")]
            z,
            #[serde(rename = "T")]
            t: now as i64,
            data: data.collect::<Vec<_>>(),
            rate,
            prune: true,
        }))
    }
}

impl Parameters {
    fn new(query: Parsed) -> Result<Parameters, Refused> {
        match query {
            Ok(Query(parameters)) => Ok(Parameters(parameters)),
            Err(_) => Err(Refused(StatusCode::BAD_REQUEST, "INVALID_URI")),
        }
    }

    /// Returns the first value of this name.
    fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Returns the number `N`. Without one, it is `usual`.
    fn n<T: FromStr>(&self, usual: T, wrong: &'static str) -> Result<T, Refused> {
        match self.get("N") {
            None | Some("") => Ok(usual),
            Some(text) => text
                .parse()
                .map_err(|_| Refused(StatusCode::BAD_REQUEST, wrong)),
        }
    }

    fn distribution<'a>(&'a self, usual: &'a str) -> Result<&'a str, Refused> {
        match self.get("distribution").unwrap_or(usual) {
            "" => Err(Refused(StatusCode::BAD_REQUEST, "MISSING_ARG_DISTRIBUTION")),
            name if name.len() > NAME_BYTES_MAX => {
                Err(Refused(StatusCode::BAD_REQUEST, "INVALID_ARG_DISTRIBUTION"))
            }
            name => Ok(name),
        }
    }

    fn fields(&self) -> Result<Vec<&str>, Refused> {
        let fields = self.0.iter().filter(|(name, _)| name == "field");
        let fields: Vec<&str> = fields.map(|(_, value)| value.as_str()).collect();
        if fields.is_empty() || fields.contains(&"") {
            return Err(Refused(StatusCode::BAD_REQUEST, "MISSING_ARG_FIELD"));
        }
        if fields.iter().any(|field| field.len() > NAME_BYTES_MAX) {
            return Err(Refused(StatusCode::BAD_REQUEST, "INVALID_ARG_FIELD"));
        }
        Ok(fields)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let Refused(status, text) = self;
        (status, json(status, text, None::<()>)).into_response()
    }
}

fn answer(data: impl Serialize) -> Response {
    json(StatusCode::OK, "", data)
}

fn json(status: StatusCode, status_txt: &str, data: impl Serialize) -> Response {
    let answer = json_object! { status_code: status.as_u16(), status_txt, data };
    let body = serde_json::to_string(&answer).expect("the answers are JSON");
    (
        [(header::CONTENT_TYPE, "application/json; charset=utf-8")],
        body,
    )
        .into_response()
}
