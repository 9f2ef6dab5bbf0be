//! The files in MLX's tree that decide, called through `mlx/row_policy.h`.

use std::ffi::{CStr, c_char};

use mlx_terms::{Path, Policy, PolicyKind, Primitive, Route};

use crate::attention::{Attention, AttentionRow, RawAttention, Way};
use crate::dense::{Dense, DenseAlone, DenseDecision, DenseWay};
use crate::kernel::Decision;
use crate::{Error, Problem, upstream};

/// `mlx_row_problem`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct RawProblem {
    op: i32,
    mode: i32,
    dtype: i32,
    bits: i32,
    group_size: i32,
    transpose: i32,
    m: i32,
    n: i32,
    k: i32,
    batch: i32,
    experts: i32,
    right_sorted: i32,
    global_scale: i32,
    heads: i32,
    kv_heads: i32,
    keys: i32,
    stream: i32,
}

impl RawProblem {
    const NONE: Self = Self {
        op: 0,
        mode: 0,
        dtype: 0,
        bits: 0,
        group_size: 0,
        transpose: 0,
        m: 0,
        n: 0,
        k: 0,
        batch: 0,
        experts: 0,
        right_sorted: 0,
        global_scale: 0,
        heads: 0,
        kv_heads: 0,
        keys: 0,
        stream: -1,
    };
}

/// `mlx_row_policy`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct RawPolicy {
    kind: i32,
    rows: i32,
}

impl From<Policy> for RawPolicy {
    fn from(policy: Policy) -> Self {
        let [kind, rows] = policy.numbers();
        Self { kind, rows }
    }
}

/// `mlx_row_upstream`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct RawUpstream {
    batch_limit: i32,
    matrix_kernels: i32,
    wide: i32,
    fast: i32,
}

/// `mlx_row_route`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct RawRoute {
    mode: i32,
    bits: i32,
    group_size: i32,
    n: [i32; 2],
    k: [i32; 2],
    m: [i32; 2],
    path: i32,
}

/// `mlx_row_plan`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct RawPlan {
    policy: RawPolicy,
    path: i32,
    fast: i32,
    tile: i32,
    outputs: i32,
    sharing: i32,
    identical: i32,
}

/// `mlx_row_attention_row`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct RawAttentionRow {
    keys: i32,
    path: i32,
    blocks: i32,
    end: i32,
}

/// `mlx_row_dense_plan`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct RawDensePlan {
    policy: RawPolicy,
    path: i32,
    alone: i32,
    tile_of_alone: [i32; 6],
    tile: i32,
    identical: i32,
}

// Matches the static_asserts of those files.
const _: () = assert!(
    size_of::<RawProblem>() == 17 * 4
        && size_of::<RawUpstream>() == 4 * 4
        && size_of::<RawRoute>() == 10 * 4
        && size_of::<RawPlan>() == 8 * 4
        && size_of::<RawPolicy>() == 2 * 4
        && size_of::<RawAttention>() == 6 * 4
        && size_of::<RawAttentionRow>() == 4 * 4
        && size_of::<RawDensePlan>() == 12 * 4
);

unsafe extern "C" {
    fn mlx_row_last_error() -> *const c_char;
    fn mlx_row_decide(
        problem: *const RawProblem,
        upstream: *const RawUpstream,
        policy: RawPolicy,
        routes: *const RawRoute,
        route_count: usize,
        plan: *mut RawPlan,
    ) -> i32;
    fn mlx_row_plan_attention(
        problem: *const RawProblem,
        call: *const RawAttention,
        kind: i32,
        unfused: *const u8,
        rows: *mut RawAttentionRow,
    ) -> i32;
    fn mlx_row_decide_dense(
        problem: *const RawProblem,
        policy: RawPolicy,
        plan: *mut RawDensePlan,
    ) -> i32;
    #[cfg(test)]
    fn mlx_row_attention_name(path: i32) -> *const c_char;
    #[cfg(test)]
    fn mlx_row_policy_from_text(text: *const c_char, policy: *mut RawPolicy) -> i32;
    #[cfg(test)]
    fn mlx_row_policy_text(policy: RawPolicy, text: *mut c_char) -> i32;
    #[cfg(test)]
    fn mlx_row_policy_name(kind: i32) -> *const c_char;
    #[cfg(test)]
    fn mlx_row_path_name(path: i32) -> *const c_char;
}

/// Decides a problem that [`Problem::check`] has accepted.
pub(crate) fn decide(
    problem: &Problem,
    policy: Policy,
    routes: &[Route],
) -> Result<Decision, Error> {
    let routes: Vec<_> = routes.iter().map(raw_route).collect();
    decide_raw(
        &raw_problem(problem)?,
        &raw_upstream(problem),
        policy.into(),
        &routes,
    )
}

fn decide_raw(
    problem: &RawProblem,
    upstream: &RawUpstream,
    policy: RawPolicy,
    routes: &[RawRoute],
) -> Result<Decision, Error> {
    let mut plan = RawPlan::default();
    // SAFETY: the pointers are valid for the call, the count is that of the entries behind `routes`, and the layouts
    // match the header, field by field.
    let status = unsafe {
        mlx_row_decide(
            problem,
            upstream,
            policy,
            routes.as_ptr(),
            routes.len(),
            &mut plan,
        )
    };
    if status != 0 {
        return Err(Error::Invalid(last_error()));
    }
    let unknown = || Error::Invalid(format!("the dispatch named a path {}", plan.path));
    Ok(Decision {
        path: Path::from_number(plan.path).ok_or_else(unknown)?,
        fast: plan.fast != 0,
        tile: u32::try_from(plan.tile).unwrap_or(0),
        outputs: u32::try_from(plan.outputs).unwrap_or(0),
        sharing: u32::try_from(plan.sharing).unwrap_or(0),
        identical: plan.identical != 0,
    })
}

/// How each row of a block is computed alone, and its group under a kind of policy. `unfused` has a value for each row.
pub(crate) fn plan_attention(
    problem: &Attention,
    call: &RawAttention,
    kind: PolicyKind,
    unfused: &[u8],
) -> Result<Vec<AttentionRow>, Error> {
    let raw = RawProblem {
        op: Primitive::Attention as i32,
        dtype: problem.dtype as i32,
        m: int("rows", problem.rows)?,
        n: int("the value's dimension", problem.value_dim)?,
        k: int("the head's dimension", problem.head_dim)?,
        batch: 1,
        experts: 1,
        heads: int("heads", problem.heads)?,
        kv_heads: int("heads of the keys", problem.kv_heads)?,
        keys: int("keys", problem.keys)?,
        ..RawProblem::NONE
    };
    if unfused.len() != problem.rows as usize {
        return Err(Error::Invalid("a value for each row is needed".to_owned()));
    }
    let mut rows = vec![RawAttentionRow::default(); unfused.len()];
    // SAFETY: the pointers are valid for the call; `unfused` and `rows` have an entry for each of the problem's `m`
    // rows.
    let status = unsafe {
        mlx_row_plan_attention(&raw, call, kind as i32, unfused.as_ptr(), rows.as_mut_ptr())
    };
    if status != 0 {
        return Err(Error::Invalid(last_error()));
    }
    let number = |value: i32| u32::try_from(value).unwrap_or(0);
    rows.into_iter()
        .map(|row| {
            let unknown = || Error::Invalid(format!("the plan named a way {}", row.path));
            Ok(AttentionRow {
                keys: number(row.keys),
                way: Way::from_number(row.path).ok_or_else(unknown)?,
                blocks: number(row.blocks),
                end: number(row.end),
            })
        })
        .collect()
}

pub(crate) fn decide_dense(problem: &Dense, policy: Policy) -> Result<DenseDecision, Error> {
    let op = if problem.addmm {
        Primitive::Addmm
    } else {
        Primitive::Matmul
    };
    let raw = RawProblem {
        op: op as i32,
        dtype: problem.dtype as i32,
        transpose: problem.transpose.into(),
        m: int("m", problem.m)?,
        n: int("n", problem.n)?,
        k: int("k", problem.k)?,
        batch: int("batch", problem.batch)?,
        experts: 1,
        ..RawProblem::NONE
    };
    let mut plan = RawDensePlan::default();
    // SAFETY: the pointers are valid for the call, and the layouts are those of the header.
    let status = unsafe { mlx_row_decide_dense(&raw, policy.into(), &mut plan) };
    if status != 0 {
        return Err(Error::Invalid(last_error()));
    }
    let unknown = || {
        Error::Invalid(format!(
            "the plan named a way {} and a kernel {}",
            plan.path, plan.alone
        ))
    };
    Ok(DenseDecision {
        way: DenseWay::from_number(plan.path).ok_or_else(unknown)?,
        alone: DenseAlone::from_number(plan.alone).ok_or_else(unknown)?,
        tile_of_alone: plan.tile_of_alone,
        tile: u32::try_from(plan.tile).unwrap_or(0),
        identical: plan.identical != 0,
    })
}

fn int(field: &str, value: u32) -> Result<i32, Error> {
    i32::try_from(value)
        .map_err(|_| Error::Invalid(format!("{field} must be below 2^31, found {value}")))
}

fn last_error() -> String {
    // SAFETY: the function returns a NUL-terminated string that lives until this thread's next failed call.
    let message = unsafe { CStr::from_ptr(mlx_row_last_error()) };
    message.to_string_lossy().into_owned()
}

fn raw_problem(problem: &Problem) -> Result<RawProblem, Error> {
    Ok(RawProblem {
        op: problem.op as i32,
        mode: problem.mode as i32,
        dtype: problem.dtype as i32,
        bits: int("bits", problem.bits)?,
        group_size: int("group_size", problem.group_size)?,
        transpose: problem.transpose.into(),
        m: int("m", problem.m)?,
        n: int("n", problem.n)?,
        k: int("k", problem.k)?,
        batch: int("batch", problem.batch)?,
        experts: int("experts", problem.experts)?,
        right_sorted: problem.right_sorted.into(),
        global_scale: problem.global_scale.into(),
        ..RawProblem::NONE
    })
}

fn raw_upstream(problem: &Problem) -> RawUpstream {
    RawUpstream {
        batch_limit: i32::try_from(upstream::batch_limit(problem)).unwrap_or(i32::MAX),
        matrix_kernels: upstream::has_matrix_kernels(problem).into(),
        wide: upstream::prefers_wide(problem).into(),
        fast: upstream::is_fast(problem).into(),
    }
}

fn raw_route(route: &Route) -> RawRoute {
    RawRoute {
        mode: route.mode.map_or(-1, |mode| mode as i32),
        bits: route.bits.map_or(0, i32::from),
        group_size: route.group_size.map_or(0, i32::from),
        n: [*route.n.start(), *route.n.end()],
        k: [*route.k.start(), *route.k.end()],
        m: [*route.m.start(), *route.m.end()],
        path: route.path as i32,
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use mlx_terms::Mode;

    use super::*;
    use crate::{Dtype, Op};

    /// Names and numbers are the same in both languages, and neither has more.
    #[test]
    fn names_are_those_of_the_header() {
        let text = |name: *const c_char| {
            // SAFETY: the functions return a static string, or null for a value that does not exist.
            (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_str().unwrap())
        };
        for number in -1..20 {
            // SAFETY: any number is accepted.
            let (kind, path) = unsafe { (mlx_row_policy_name(number), mlx_row_path_name(number)) };
            assert_eq!(
                text(kind),
                PolicyKind::from_number(number).map(PolicyKind::name)
            );
            assert_eq!(text(path), Path::from_number(number).map(Path::name));
            // SAFETY: any number is accepted.
            let way = unsafe { mlx_row_attention_name(number) };
            // The last one is MLX's, for whole blocks.
            let known = Way::from_number(number).filter(|&way| way != Way::Matrix);
            assert_eq!(text(way), known.map(Way::name));
        }
    }

    /// Both languages parse a text to the same policy or reject it with the same error, and format it alike.
    #[test]
    fn policies_are_read_and_written_as_in_c() {
        let names = [
            "default", "exact", "narrow", "wide", "streamed", "Exact", " exact", "exact ", "fast",
            "", "é",
        ];
        let rows = [
            "",
            ":",
            ":all",
            ":ALL",
            ":1",
            ":16",
            ":17",
            ":064",
            ":0",
            ":00",
            ":-1",
            ":+1",
            ":1.5",
            ":1e3",
            ": 8",
            ":8 ",
            ":8:8",
            ":all:8",
            ":é",
            ":2147483647",
            ":2147483648",
            ":4294967296",
            ":99999999999999999999999",
            ":-99999999999999999999999",
            ":99999999999999999999999x",
        ];
        for text in names
            .iter()
            .flat_map(|name| rows.iter().map(move |rows| format!("{name}{rows}")))
        {
            let c_text = CString::new(text.as_str()).unwrap();
            let mut raw = RawPolicy::default();
            // SAFETY: the text ends with a zero and the policy may be written.
            let status = unsafe { mlx_row_policy_from_text(c_text.as_ptr(), &mut raw) };
            let expected = text
                .parse::<Policy>()
                .map(RawPolicy::from)
                .map_err(|error| error.to_string());
            let found = if status == 0 {
                Ok(raw)
            } else {
                Err(last_error())
            };
            assert_eq!(found, expected, "{text:?}");
            if let Ok(policy) = text.parse::<Policy>() {
                let mut written = [0; 32];
                // SAFETY: as many bytes as the header's MLX_ROW_TEXT_SIZE may be written.
                let status = unsafe { mlx_row_policy_text(raw, written.as_mut_ptr()) };
                assert_eq!(status, 0);
                // SAFETY: the function succeeded, so a string that ends with a zero is there.
                let written = unsafe { CStr::from_ptr(written.as_ptr()) };
                assert_eq!(written.to_str().unwrap(), policy.to_string());
            }
        }
    }

    /// Values without a name in C have their number in the header.
    #[test]
    fn numbers_are_those_of_the_header() {
        let header = include_str!("../../../patches/files/mlx/row_policy.h");
        let numbers = |kind: &str| -> Vec<(String, i32)> {
            let prefix = format!("MLX_ROW_{kind}_");
            let entry = |line: &str| {
                let (name, number) = line.trim().strip_prefix(&prefix)?.split_once(" = ")?;
                Some((
                    name.to_lowercase(),
                    number.trim_end_matches(',').parse().ok()?,
                ))
            };
            header
                .lines()
                .filter_map(entry)
                .filter(|&(_, number)| number >= 0)
                .collect()
        };
        let define = |name: &str| -> u32 {
            let prefix = format!("#define MLX_ROW_{name} ");
            let line = header.lines().find_map(|line| line.strip_prefix(&prefix));
            line.unwrap().parse().unwrap()
        };
        assert_eq!(define("BLOCK_ROWS"), Policy::BLOCK_ROWS);
        assert_eq!(define("PICKS_PER_ROW"), Policy::PICKS_PER_ROW);
        assert_eq!(define("TEXT_SIZE"), 32);
        let expected = |names: &[(&str, i32)]| -> Vec<(String, i32)> {
            names
                .iter()
                .map(|&(name, number)| (name.to_owned(), number))
                .collect()
        };
        let modes: Vec<_> = Mode::ALL
            .iter()
            .map(|&mode| (mode.name(), mode as i32))
            .collect();
        assert_eq!(numbers("MODE"), expected(&modes));
        let dtypes: Vec<_> = Dtype::ALL
            .iter()
            .map(|&dtype| (dtype.name(), dtype as i32))
            .collect();
        assert_eq!(numbers("DTYPE"), expected(&dtypes));
        let primitives: Vec<_> = Primitive::ALL
            .iter()
            .map(|&op| match op {
                Primitive::QqMatmul => ("qq_matmul", op as i32),
                op => (op.name(), op as i32),
            })
            .collect();
        assert_eq!(numbers("OP"), expected(&primitives));
        for &op in Op::ALL {
            let primitive = Primitive::from_number(op as i32).unwrap();
            assert_eq!(op.name(), primitive.name());
        }
    }

    /// Values that Rust's types cannot express.
    #[test]
    fn numbers_that_name_nothing_are_refused() {
        let problem = Problem::new("applegpu_g15d".parse().unwrap(), 64, 512);
        let upstream = raw_upstream(&problem);
        let good = raw_problem(&problem).unwrap();
        let told = |problem: RawProblem, kind, routes: &[RawRoute]| {
            let outcome = decide_raw(&problem, &upstream, RawPolicy { kind, rows: 16 }, routes);
            outcome.map(|_| ()).map_err(|error| error.to_string())
        };
        let refused = |text: &str| Err(text.to_owned());
        assert_eq!(told(good, 3, &[]), Ok(()));
        assert_eq!(
            told(good, 4, &[]),
            refused(
                "the policy must be a kind from 0 to 3 and a number of rows (0 for no limit), found 4 and 16"
            )
        );
        let endless = RawPolicy { kind: 1, rows: -1 };
        let error = decide_raw(&good, &upstream, endless, &[]).unwrap_err();
        assert!(error.to_string().ends_with("found 1 and -1"), "{error}");
        for (problem, text) in [
            (
                RawProblem { op: 4, ..good },
                "op must be 0 to 3, a quantized product, found 4",
            ),
            (
                RawProblem { mode: -1, ..good },
                "mode must be 0 to 3, found -1",
            ),
            (
                RawProblem { bits: 0, ..good },
                "bits must be 1 to 8, found 0",
            ),
            (
                RawProblem { m: -1, ..good },
                "m must be 0 or more, found -1",
            ),
            (
                RawProblem { k: 0, ..good },
                "k must be a positive multiple of the group size, 64, found 0",
            ),
            (
                RawProblem { experts: 0, ..good },
                "experts must be 1 or more, found 0",
            ),
        ] {
            assert_eq!(told(problem, 0, &[]), refused(text));
        }
        let route = RawRoute {
            mode: -1,
            bits: 0,
            group_size: 0,
            n: [0, 9],
            k: [0, 9],
            m: [0, 9],
            path: Path::Qmv as i32,
        };
        assert_eq!(told(good, 0, &[route]), Ok(()));
        for mode in [-2, 4] {
            let text = format!("route 1: mode must be 0 to 3 or -1 for any, found {mode}");
            assert_eq!(
                told(good, 0, &[route, RawRoute { mode, ..route }]),
                Err(text)
            );
        }
        for (path, name) in [
            (Path::Quad as i32, "qmv_quad"),
            (Path::Rows as i32, "rows"),
            (40, "40"),
        ] {
            let text = format!(
                "route 0: path must be qmv, qmv_wide, qmv_streamed or qmv_streamed_alt, found {name}"
            );
            assert_eq!(told(good, 0, &[RawRoute { path, ..route }]), Err(text));
        }
    }
}
