//! Random graphs on several threads against plain Rust, with refusals in between.
//!
//! Short by default. A long run, with another start each time, in which each thread prints the seed of what fails:
//!
//! ```console
//! $ GRAPH_SECONDS=1800 GRAPH_SEED=$RANDOM cargo test -p mlx-overlay --test random_graphs
//! ```

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::env;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use mlx_overlay::{
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

/// A matrix of MLX's and the same one in plain Rust. The numbers are small integers, which every order of summing adds
/// up to the same float32.
#[derive(Clone)]
struct Pair {
    array: Array,
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
        Ok(Self {
            array,
            rows,
            columns,
            values,
        })
    }

    fn from(array: Array, values: Vec<f32>) -> Self {
        let &[rows, columns] = array.shape() else {
            panic!("{array:?} is no matrix")
        };
        assert_eq!(values.len(), rows * columns, "{array:?}");
        Self {
            array,
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

    /// One more operation on it, or `None` if the numbers would grow too large.
    fn next(&self, random: &mut Random, others: &[Self]) -> Result<Option<Self>> {
        let a = &self.array;
        let other = &others[random.below(others.len())];
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
        let made = match random.below(13) {
            0 if same() => Self::from(add(a, &other.array)?, zipped(|x, y| x + y)),
            1 if same() => Self::from(multiply(a, &other.array)?, zipped(|x, y| x * y)),
            2 => Self::from(
                transpose(a)?,
                (0..self.columns)
                    .flat_map(|c| (0..self.rows).map(move |r| (r, c)))
                    .map(|(r, c)| self.at(r, c))
                    .collect(),
            ),
            3 => Self::from(reshape(a, &[self.columns, self.rows])?, self.values.clone()),
            4 => {
                let (r, c) = (random.below(self.rows), random.below(self.columns));
                let values = (r..self.rows).flat_map(|row| self.row(row)[c..].to_vec());
                let values = values.collect();
                Self::from(slice(a, &[r..self.rows, c..self.columns])?, values)
            }
            5 => {
                let (r, c) = (random.below(self.rows), random.below(self.columns));
                let update = Array::full(&[1, 1], 7.0f32)?;
                let mut values = self.values.clone();
                values[r * self.columns + c] = 7.0;
                let array = slice_update(a, &update, &[r..r + 1, c..c + 1])?;
                Self::from(array, values)
            }
            6 if self.columns == other.columns && self.rows + other.rows < 20 => Self::from(
                concatenate(&[a, &other.array], 0)?,
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
                Self::from(take(a, &Array::from_slice(&ids, &[3])?, -2)?, values)
            }
            8 => Self::from(sort(a, -1)?, by_rows(|row| row.sort_by(f32::total_cmp))),
            9 => Self::from(
                cumsum(a, 1)?,
                by_rows(|row| {
                    for i in 1..row.len() {
                        row[i] += row[i - 1];
                    }
                }),
            ),
            10 if same() => Self::from(
                where_(&less(a, &other.array)?, a, &other.array)?,
                zipped(f32::min),
            ),
            // MLX's dot product on a GPU loads four floats at once from wherever a slice begins, which the simulated
            // device refuses.
            11 if self.columns == other.rows && (self.rows, other.columns) != (1, 1) => Self::from(
                matmul(a, &other.array)?,
                (0..self.rows)
                    .flat_map(|r| (0..other.columns).map(move |c| (r, c)))
                    .map(|(r, c)| {
                        (0..self.columns)
                            .map(|k| self.at(r, k) * other.at(k, c))
                            .sum()
                    })
                    .collect(),
            ),
            12 => {
                let largest = |row: &[f32]| {
                    let first = |best: usize, i: usize| if row[i] > row[best] { i } else { best };
                    (0..row.len()).fold(0, first) as f32
                };
                let values = (0..self.rows).map(|row| largest(self.row(row))).collect();
                let index = as_type(&argmax(a)?, Dtype::F32)?;
                Self::from(reshape(&index, &[self.rows, 1])?, values)
            }
            _ => return Ok(None),
        };
        let bounded = made.values.iter().all(|v| v.abs() <= LARGEST);
        Ok(bounded.then_some(made))
    }
}

/// What threads hand to each other.
type Shelf = Mutex<Vec<(Evaluated, Vec<f32>)>>;

fn check(pair: &Pair) -> Result<Evaluated> {
    let evaluated = pair.array.evaluate()?;
    // -0 is 0.
    assert_eq!(
        evaluated.as_slice::<f32>()?,
        pair.values,
        "{:?}",
        pair.array
    );
    Ok(evaluated)
}

fn one_graph(seed: u64, streams: &[Stream], shelf: &Shelf) -> Result<()> {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut pairs = vec![Pair::new(&mut random)?, Pair::new(&mut random)?];
    for _ in 0..5 + random.below(30) {
        let stream = &streams[random.below(streams.len())];
        stream.scope(|| -> Result<()> {
            let at = random.below(pairs.len());
            if let Some(next) = pairs[at].next(&mut random, &pairs)? {
                pairs.push(next);
            }
            match random.below(16) {
                0 => drop(check(&pairs[at])?),
                1 => async_eval([&pairs[at].array])?,
                2 => eval(pairs.iter().map(|pair| &pair.array).take(3))?,
                3 => {
                    let values = pairs[at].values.clone();
                    let evaluated = check(&pairs[at])?;
                    let mut shelf = shelf.lock().unwrap();
                    shelf.push((evaluated, values));
                    if shelf.len() > 8 {
                        shelf.swap_remove(random.below(8));
                    }
                }
                4 => {
                    let mut shelf = shelf.lock().unwrap();
                    if let Some((evaluated, values)) = shelf.pop() {
                        drop(shelf);
                        pairs.push(Pair::from(evaluated.to_array()?, values));
                    }
                }
                5 if pairs.len() > 2 => drop(pairs.swap_remove(at)),
                6 => {
                    // Refused before anything of it runs: larger than there is.
                    let huge = Array::zeros(&[1 << 20, 1 << 20, 1 << 8], Dtype::F32);
                    assert!(matches!(huge, Err(Error::OutOfMemory { .. })));
                }
                7 => pairs.push(Pair::new(&mut random)?),
                _ => {}
            }
            Ok(())
        })?;
    }
    // In any order, and from any stream.
    while !pairs.is_empty() {
        let pair = pairs.swap_remove(random.below(pairs.len()));
        streams[random.below(streams.len())].scope(|| check(&pair))?;
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
    let thread = |number: u64| {
        let mut streams = Vec::new();
        for device in [Device::Cpu, Device::Gpu] {
            if device.is_available().unwrap() {
                streams.push(Stream::default_of(device).unwrap());
                streams.push(Stream::new(device).unwrap());
            }
        }
        // Kernels of policies are compiled for many shapes: not while there is little time.
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
            let graph = std::panic::AssertUnwindSafe(|| one_graph(seed, &streams, &shelf));
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
}
