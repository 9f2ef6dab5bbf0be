//! Random graphs on several threads, compared with plain Rust, with evaluations that fail in between.
//!
//! Half of the graphs have operations that fail: on a CPU stream when they run, on a GPU when they are scheduled. A
//! [`Node`] for each array records what the documentation promises: that the array is lost, that it is available,
//! or, if its stream had failing work that was not waited for, either. Contents that are returned must be right.
//!
//! Short by default. A long run, with a new seed each time; each thread prints the seed of a failure:
//!
//! ```console
//! $ GRAPH_SECONDS=1800 GRAPH_SEED=$RANDOM cargo test -p mlx-overlay --lib random_graphs -- --nocapture
//! ```

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::env;
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::{
    Array, Device, Dtype, Error, Evaluated, Result, RowPolicy, Stream, add, argmax, as_type,
    async_eval, concatenate, cumsum, eval, has_policies, less, matmul, multiply, reshape, slice,
    slice_update, sort, take, transpose, where_,
};

/// xorshift64*: the same graphs from the same seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// The state that the documentation promises for an array.
struct Node {
    inputs: Vec<Rc<Node>>,
    /// The bit of the stream on which it was built.
    stream: u32,
    fails: Option<Device>,
    /// Whether it fails, or is computed from an array that fails.
    doomed: bool,
    fate: RefCell<Fate>,
}

#[derive(Clone)]
enum Fate {
    Pending,
    Started(Rc<Started>),
    Done,
    Lost,
    /// One of the above; it is not known which.
    Unsure,
}

/// An evaluation that was started but not waited for.
struct Started {
    streams: u32,
    after: Vec<Rc<Started>>,
    outcome: Cell<Outcome>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Good,
    Bad,
    Unsure,
}

impl Node {
    fn given() -> Rc<Self> {
        Self::new(Vec::new(), 0, None, Fate::Done)
    }

    fn new(inputs: Vec<Rc<Self>>, stream: u32, fails: Option<Device>, fate: Fate) -> Rc<Self> {
        Rc::new(Self {
            doomed: fails.is_some() || inputs.iter().any(|input| input.doomed),
            inputs,
            stream,
            fails,
            fate: RefCell::new(fate),
        })
    }

    fn fate(&self) -> Fate {
        self.fate.borrow().clone()
    }

    fn set(&self, fate: Fate) {
        *self.fate.borrow_mut() = fate;
    }
}

/// The nodes that an evaluation would reach.
#[derive(Default)]
struct Reach {
    outputs: Vec<Rc<Node>>,
    /// Nodes that it would certainly compute.
    pending: Vec<Rc<Node>>,
    /// Nodes that it would compute unless they are already available.
    perhaps: Vec<Rc<Node>>,
    started: Vec<Rc<Started>>,
    /// The streams that it would use, one bit each.
    streams: u32,
    doomed: bool,
    lost: bool,
}

impl Reach {
    fn of(outputs: &[&Rc<Node>]) -> Self {
        let mut reach = Self {
            outputs: outputs.iter().map(|&node| node.clone()).collect(),
            doomed: outputs.iter().any(|node| node.doomed),
            ..Self::default()
        };
        let mut seen = HashSet::new();
        // Nodes that are certainly reached come first.
        for surely in [true, false] {
            let mut open: Vec<(Rc<Node>, bool)> =
                outputs.iter().map(|&node| (node.clone(), true)).collect();
            while let Some((node, sure)) = open.pop() {
                let fate = node.fate();
                let sure = sure && !matches!(fate, Fate::Unsure);
                if surely && !sure || !seen.insert((surely, Rc::as_ptr(&node))) {
                    continue;
                }
                match fate {
                    Fate::Pending | Fate::Unsure => {
                        open.extend(node.inputs.iter().map(|input| (input.clone(), sure)));
                        if surely {
                            reach.pending.push(node.clone());
                        } else if !seen.contains(&(true, Rc::as_ptr(&node))) {
                            reach.perhaps.push(node.clone());
                        }
                        reach.streams |= node.stream;
                    }
                    Fate::Started(started) => {
                        if !reach
                            .started
                            .iter()
                            .any(|other| Rc::ptr_eq(other, &started))
                        {
                            reach.started.push(started);
                        }
                    }
                    Fate::Lost => reach.lost = true,
                    Fate::Done => {}
                }
            }
        }
        reach
    }

    fn waits_for(&self, outcome: Outcome) -> bool {
        self.started
            .iter()
            .any(|started| started.outcome.get() == outcome)
    }

    fn fails_on(&self, device: Device) -> bool {
        self.pending.iter().any(|node| node.fails == Some(device))
    }

    fn must_fail(&self) -> bool {
        self.doomed || self.lost || self.waits_for(Outcome::Bad)
    }

    /// Whether something unknown can make it fail.
    fn may_fail(&self, tainted: u32) -> bool {
        !self.perhaps.is_empty() || self.waits_for(Outcome::Unsure) || self.streams & tainted != 0
    }
}

/// A thread's streams and evaluations.
struct World<'a> {
    streams: &'a [Stream],
    /// Streams with work that failed, or may have failed, and was not waited for.
    tainted: Cell<u32>,
    open: RefCell<Vec<Rc<Started>>>,
    tally: &'a Tally,
}

/// Counts of the outcomes.
#[derive(Default)]
struct Tally {
    graphs: AtomicU64,
    there: AtomicU64,
    lost: AtomicU64,
    either: AtomicU64,
}

impl Tally {
    fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

impl World<'_> {
    /// Compares the outcome of an evaluation with what was promised, and records the consequences.
    fn judge(&self, reach: &Reach, result: &Result<()>, is_waited_for: bool) {
        if let Err(error) = result {
            assert!(matches!(error, Error::Lost | Error::Mlx(_)), "{error}");
        }
        let tainted = self.tainted.get();
        let (must, may) = (reach.must_fail(), reach.may_fail(tainted));
        Tally::count(match (must, may) {
            (true, _) => &self.tally.lost,
            (false, true) => &self.tally.either,
            (false, false) => &self.tally.there,
        });
        if is_waited_for {
            assert!(!must || result.is_err(), "it depends on a failed array");
        } else if reach.lost || reach.fails_on(Device::Gpu) {
            assert!(result.is_err(), "it cannot be started");
        }
        assert!(must || may || result.is_ok(), "lost: {result:?}");
        // Rejected before anything was done.
        if reach.lost {
            return;
        }
        match result {
            Ok(()) if is_waited_for => {
                self.end(reach, &Fate::Done);
                for output in &reach.outputs {
                    output.set(Fate::Done);
                }
                self.close(&reach.started);
            }
            Ok(()) if reach.pending.is_empty() && reach.perhaps.is_empty() => {}
            Ok(()) => {
                let outcome = if must {
                    Outcome::Bad
                } else if may {
                    Outcome::Unsure
                } else {
                    Outcome::Good
                };
                let started = Rc::new(Started {
                    streams: reach.streams,
                    after: reach.started.clone(),
                    outcome: Cell::new(outcome),
                });
                self.open.borrow_mut().push(started.clone());
                self.end(reach, &Fate::Started(started));
                if must || may {
                    self.taint(reach.streams);
                }
            }
            Err(_) if may || reach.waits_for(Outcome::Bad) => {
                self.end(reach, &Fate::Unsure);
                self.taint(reach.streams);
            }
            Err(_) => {
                self.end(reach, &Fate::Lost);
                // If it could not be started, the evaluations that it uses may have failed.
                let used = reach.started.iter();
                self.doubt(used.fold(reach.streams, |all, started| all | started.streams));
            }
        }
    }

    fn end(&self, reach: &Reach, fate: &Fate) {
        for node in &reach.pending {
            node.set(fate.clone());
        }
        for node in &reach.perhaps {
            node.set(Fate::Unsure);
        }
    }

    /// Marks evaluations as waited for, with those that they use.
    fn close(&self, good: &[Rc<Started>]) {
        for started in good {
            started.outcome.set(Outcome::Good);
            self.close(&started.after);
        }
        let is_closed = |s: &Rc<Started>| good.iter().any(|other| Rc::ptr_eq(other, s));
        self.open.borrow_mut().retain(|started| !is_closed(started));
    }

    /// Records that an error of these streams was thrown. It may belong to work that was not waited for.
    fn doubt(&self, streams: u32) {
        let open = self.open.borrow();
        for started in open.iter() {
            let uses_doubtful = || {
                let mut after = started.after.iter();
                after.any(|other| other.outcome.get() != Outcome::Good)
            };
            // In order, so that each comes after the evaluations that it uses.
            if started.outcome.get() == Outcome::Good
                && (started.streams & streams != 0 || uses_doubtful())
            {
                started.outcome.set(Outcome::Unsure);
            }
        }
    }

    /// Records that an error of these streams is still to come.
    fn taint(&self, streams: u32) {
        self.tainted.set(self.tainted.get() | streams);
        loop {
            let before = self.tainted.get();
            self.doubt(before);
            let open = self.open.borrow();
            let doubtful = open.iter().filter(|s| s.outcome.get() != Outcome::Good);
            let streams = doubtful.fold(before, |streams, started| streams | started.streams);
            if streams == before {
                break;
            }
            self.tainted.set(streams);
        }
    }

    /// Waits for everything, so that no error is left.
    fn synchronize(&self) {
        let open = self.open.borrow();
        let doubtful = open.iter().filter(|s| s.outcome.get() != Outcome::Good);
        let doubtful = doubtful.fold(self.tainted.get(), |all, s| all | s.streams);
        drop(open);
        for round in 0..2 {
            for (i, stream) in self.streams.iter().enumerate() {
                let result = stream.synchronize();
                let may_fail = round == 0 && doubtful & (1 << i) != 0;
                assert!(
                    may_fail || result.is_ok(),
                    "round {round}, stream {i}: {result:?}"
                );
            }
        }
        self.tainted.set(0);
        self.open.borrow_mut().clear();
    }
}

/// A matrix of MLX and the same matrix in plain Rust. The numbers are small integers, so every order of summing gives the
/// same float32.
#[derive(Clone)]
struct Pair {
    array: Array,
    node: Rc<Node>,
    rows: usize,
    columns: usize,
    values: Vec<f32>,
}

const LARGEST: f32 = 1000.0;

impl Pair {
    fn new(random: &mut Random) -> Result<Self> {
        let (rows, columns) = (1 + random.below(6), 1 + random.below(6));
        let values: Vec<f32> = (0..rows * columns)
            .map(|_| random.below(9) as f32 - 4.0)
            .collect();
        let array = if random.one_in(3) {
            let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_ne_bytes()).collect();
            Array::from_bytes(&bytes, &[rows, columns], Dtype::F32)?
        } else {
            Array::from_slice(&values, &[rows, columns])?
        };
        Ok(Self::from(array, values, Node::given()))
    }

    fn from(array: Array, values: Vec<f32>, node: Rc<Node>) -> Self {
        let &[rows, columns] = array.shape() else {
            panic!("{array:?} is not a matrix")
        };
        assert_eq!(values.len(), rows * columns, "{array:?}");
        Self {
            array,
            node,
            rows,
            columns,
            values,
        }
    }

    fn at(&self, row: usize, column: usize) -> f32 {
        self.values[row * self.columns + column]
    }

    fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.columns..][..self.columns]
    }

    /// Applies one more operation to this and perhaps another matrix. Returns the array, how many inputs it was given, how
    /// many of them MLX uses, and the numbers. `None` if the shapes do not fit.
    fn operation(
        &self,
        random: &mut Random,
        other: &Self,
    ) -> Option<(Result<Array>, [usize; 2], Vec<f32>)> {
        let a = &self.array;
        let b = &other.array;
        let same = || (self.rows, self.columns) == (other.rows, other.columns);
        let zipped = |f: fn(f32, f32) -> f32| -> Vec<f32> {
            let pairs = self.values.iter().zip(&other.values);
            pairs.map(|(&x, &y)| f(x, y)).collect()
        };
        let by_rows = |f: fn(&mut Vec<f32>)| -> Vec<f32> {
            (0..self.rows)
                .flat_map(|row| {
                    let mut row = self.row(row).to_vec();
                    f(&mut row);
                    row
                })
                .collect()
        };
        const ONE: [usize; 2] = [1, 1];
        const BOTH: [usize; 2] = [2, 2];
        Some(match random.below(13) {
            0 if same() => (add(a, b), BOTH, zipped(|x, y| x + y)),
            1 if same() => (multiply(a, b), BOTH, zipped(|x, y| x * y)),
            2 => {
                let values = (0..self.columns)
                    .flat_map(|c| (0..self.rows).map(move |r| (r, c)))
                    .map(|(r, c)| self.at(r, c))
                    .collect();
                (transpose(a), ONE, values)
            }
            3 => (
                reshape(a, &[self.columns, self.rows]),
                ONE,
                self.values.clone(),
            ),
            4 => {
                let (r, c) = (random.below(self.rows), random.below(self.columns));
                let values = (r..self.rows).flat_map(|row| self.row(row)[c..].to_vec());
                let values = values.collect();
                (slice(a, &[r..self.rows, c..self.columns]), ONE, values)
            }
            5 => {
                let (r, c) = (random.below(self.rows), random.below(self.columns));
                let mut values = self.values.clone();
                values[r * self.columns + c] = 7.0;
                let update = |update| slice_update(a, &update, &[r..r + 1, c..c + 1]);
                // All of it is overwritten.
                let uses = usize::from(self.values.len() > 1);
                (
                    Array::full(&[1, 1], 7.0f32).and_then(update),
                    [1, uses],
                    values,
                )
            }
            6 if self.columns == other.columns && self.rows + other.rows < 20 => (
                concatenate(&[a, b], 0),
                BOTH,
                [self.values.clone(), other.values.clone()].concat(),
            ),
            7 => {
                let ids: Vec<i32> = (0..3).map(|_| random.below(12) as i32 - 6).collect();
                let length = self.rows as i32;
                let row = |&id: &i32| {
                    let bounded = id.clamp(-length, length - 1);
                    self.row(bounded.rem_euclid(length) as usize).to_vec()
                };
                let values = ids.iter().flat_map(row).collect();
                let ids = Array::from_slice(&ids, &[3]);
                (ids.and_then(|ids| take(a, &ids, -2)), ONE, values)
            }
            8 => (sort(a, -1), ONE, by_rows(|row| row.sort_by(f32::total_cmp))),
            9 => {
                let sums = by_rows(|row| {
                    for i in 1..row.len() {
                        row[i] += row[i - 1];
                    }
                });
                (cumsum(a, 1), ONE, sums)
            }
            10 if same() => {
                let smaller = less(a, b).and_then(|is_less| where_(&is_less, a, b));
                (smaller, BOTH, zipped(f32::min))
            }
            // On a GPU, MLX's dot product loads four floats at once from the start of a slice. The simulated device rejects
            // that if the slice is not aligned.
            11 if self.columns == other.rows && (self.rows, other.columns) != (1, 1) => {
                let values = (0..self.rows)
                    .flat_map(|r| (0..other.columns).map(move |c| (r, c)))
                    .map(|(r, c)| {
                        (0..self.columns)
                            .map(|k| self.at(r, k) * other.at(k, c))
                            .sum()
                    })
                    .collect();
                (matmul(a, b), BOTH, values)
            }
            12 => {
                let largest = |row: &[f32]| {
                    let first = |best: usize, i: usize| if row[i] > row[best] { i } else { best };
                    (0..row.len()).fold(0, first) as f32
                };
                let values = (0..self.rows).map(|row| largest(self.row(row))).collect();
                let index = argmax(a)
                    .and_then(|index| as_type(&index, Dtype::F32))
                    .and_then(|index| reshape(&index, &[self.rows, 1]));
                // Only one choice.
                let uses = usize::from(self.columns > 1);
                (index, [1, uses], values)
            }
            _ => return None,
        })
    }
}

/// Arrays that threads pass to each other.
type Shelf = Mutex<Vec<(Evaluated, Vec<f32>)>>;

/// The numbers of an array that may be lost, computed in plain Rust; `None` if it has none.
fn check(world: &World<'_>, pair: &Pair, stream: usize) -> Option<Evaluated> {
    let mut reach = Reach::of(&[&pair.node]);
    // The copy that makes it contiguous can fail.
    reach.streams |= 1 << stream;
    let result = pair.array.evaluate();
    world.judge(
        &reach,
        &result.as_ref().map(drop).map_err(Clone::clone),
        true,
    );
    let evaluated = result.ok()?;
    // -0 becomes 0.
    let found = evaluated.as_slice::<f32>().unwrap();
    assert_eq!(found, pair.values, "{:?}", pair.array);
    Some(evaluated)
}

/// Builds on an array that may be lost.
fn build(
    inputs: &[&Pair],
    uses: usize,
    array: Result<Array>,
    values: Vec<f32>,
    (stream, fails): (usize, Option<Device>),
) -> Option<Pair> {
    let nodes: Vec<_> = inputs.iter().map(|pair| &pair.node).collect();
    let reach = Reach::of(&nodes);
    let array = match array {
        Ok(array) => array,
        Err(error) => {
            let is_known = reach.waits_for(Outcome::Bad) || reach.waits_for(Outcome::Unsure);
            let may = reach.lost || is_known || !reach.perhaps.is_empty();
            assert!(
                may && matches!(error, Error::Lost | Error::Mlx(_)),
                "{error}"
            );
            return None;
        }
    };
    assert!(!reach.lost, "built on a lost array");
    // If the operation changes nothing, it is the same array.
    let mut same = inputs.iter();
    if let Some(same) = same.find(|pair| Rc::ptr_eq(pair.array.state(), array.state())) {
        return Some(Pair::from(array, values, same.node.clone()));
    }
    let inputs = nodes.into_iter().take(uses).cloned().collect();
    let node = Node::new(inputs, 1 << stream, fails, Fate::Pending);
    Some(Pair::from(array, values, node))
}

fn one_graph(seed: u64, world: &World<'_>, shelf: &Shelf) -> Result<()> {
    Tally::count(&world.tally.graphs);
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let has_failures = random.one_in(2);
    let mut pairs = Vec::new();
    for _ in 0..5 + random.below(30) {
        let stream = random.below(world.streams.len());
        world.streams[stream].scope(|| -> Result<()> {
            while pairs.len() < 2 {
                pairs.push(Pair::new(&mut random)?);
            }
            step(&mut random, world, shelf, &mut pairs, stream, has_failures)
        })?;
    }
    if random.one_in(2) {
        world.synchronize();
    }
    // In any order and from any stream.
    while !pairs.is_empty() {
        let pair = pairs.swap_remove(random.below(pairs.len()));
        let stream = random.below(world.streams.len());
        world.streams[stream].scope(|| Ok::<_, Error>(check(world, &pair, stream)))?;
    }
    // The next graph starts from nothing.
    world.synchronize();
    Ok(())
}

fn step(
    random: &mut Random,
    world: &World<'_>,
    shelf: &Shelf,
    pairs: &mut Vec<Pair>,
    stream: usize,
    has_failures: bool,
) -> Result<()> {
    let (at, other) = (random.below(pairs.len()), random.below(pairs.len()));
    let (pair, other) = (pairs[at].clone(), pairs[other].clone());
    if has_failures && random.one_in(10) {
        let on = &world.streams[stream];
        let array = pair.array.raw().and_then(|raw| {
            let raw = bridge_testing::fails_when_run(raw, on.raw()).unwrap();
            Array::computed(raw, &[&pair.array])
        });
        let how = (stream, Some(on.device()));
        pairs.extend(build(&[&pair], 1, array, pair.values.clone(), how));
    } else if let Some((array, [given, uses], values)) = pair.operation(random, &other)
        && values.iter().all(|v| v.abs() <= LARGEST)
    {
        let inputs = &[&pair, &other][..given];
        pairs.extend(build(inputs, uses, array, values, (stream, None)));
    }
    match random.below(18) {
        0 => drop(check(world, &pair, stream)),
        1 => {
            let reach = Reach::of(&[&pair.node]);
            world.judge(&reach, &async_eval([&pair.array]), false);
        }
        2 => {
            let some = || pairs.iter().take(3);
            let nodes: Vec<_> = some().map(|pair| &pair.node).collect();
            let reach = Reach::of(&nodes);
            world.judge(&reach, &eval(some().map(|pair| &pair.array)), true);
        }
        3 => {
            if let Some(evaluated) = check(world, &pair, stream) {
                let mut shelf = shelf.lock().unwrap();
                shelf.push((evaluated, pair.values));
                if shelf.len() > 8 {
                    shelf.swap_remove(random.below(8));
                }
            }
        }
        4 => {
            let taken = shelf.lock().unwrap().pop();
            if let Some((evaluated, values)) = taken {
                pairs.push(Pair::from(evaluated.to_array()?, values, Node::given()));
            }
        }
        5 => drop(pairs.swap_remove(at)),
        6 => {
            // Rejected before anything runs: it is larger than the memory.
            let huge = Array::zeros(&[1 << 20, 1 << 20, 1 << 8], Dtype::F32);
            assert!(matches!(huge, Err(Error::OutOfMemory { .. })));
        }
        7 => pairs.push(Pair::new(random)?),
        8 => world.synchronize(),
        // A value that cannot become available is not polled for ever.
        9 => pairs.retain(|pair| !pair.node.doomed),
        _ => {}
    }
    Ok(())
}

#[test]
fn graphs_compute_what_plain_rust_does() {
    let number = |name: &str| env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let start = number("GRAPH_SEED").unwrap_or(1);
    let time = number("GRAPH_SECONDS").map(Duration::from_secs);
    let began = Instant::now();
    let shelf = Shelf::default();
    let tally = Tally::default();
    let thread = |number: u64| {
        let mut streams = Vec::new();
        for device in [Device::Cpu, Device::Gpu] {
            if device.is_available().unwrap() {
                streams.push(Stream::default_of(device).unwrap());
                streams.push(Stream::new(device).unwrap());
            }
        }
        // Kernels of policies are compiled for many shapes; a short run has no time for that.
        if time.is_some() && has_policies() && Device::Gpu.is_available().unwrap() {
            streams.push(Stream::with_policy(RowPolicy::EXACT).unwrap());
        }
        for round in 0.. {
            let over = match time {
                Some(time) => began.elapsed() >= time,
                None => round >= 60,
            };
            if over {
                break;
            }
            let seed = start + number * 1_000_000_000 + round;
            let world = World {
                streams: &streams,
                tainted: Cell::new(0),
                open: RefCell::default(),
                tally: &tally,
            };
            let graph = std::panic::AssertUnwindSafe(|| one_graph(seed, &world, &shelf));
            let ran = std::panic::catch_unwind(graph);
            assert!(matches!(ran, Ok(Ok(()))), "GRAPH_SEED={seed}: {ran:?}");
        }
    };
    thread::scope(|scope| {
        for number in 0..3 {
            let thread = &thread;
            scope.spawn(move || thread(number));
        }
    });
    let [graphs, there, lost, either] = [&tally.graphs, &tally.there, &tally.lost, &tally.either]
        .map(|n| n.load(Ordering::Relaxed));
    println!(
        "{graphs} graphs; of their evaluations {there} had to succeed, {lost} had to fail, {either} could do either"
    );
    assert!(
        lost > 0 && there > lost && either < there,
        "{lost} {either} {there}"
    );
}
