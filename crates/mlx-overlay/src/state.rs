//! Whether an array's contents are known to be good.
//!
//! MLX marks arrays as evaluated when their kernels are queued, and exposes their memory even if a kernel failed later.
//! So this crate keeps its own graph, of states only: a successful evaluation marks everything that it reached; after a
//! failed one, what it reached is lost, and so is everything that depends on that. States hold none of MLX's memory, so
//! MLX can reuse its buffers as usual.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::{Rc, Weak};

use cxx::UniquePtr;
use mlx_overlay_sys::{self as sys, DeviceKind, RawStream};

use crate::{Error, Result};

thread_local! {
    /// The number of this thread's failed evaluations.
    static FAILURES: Cell<u64> = const { Cell::new(0) };
    /// This thread's evaluations that are not known to have ended, or whose error was not returned to a caller yet; the
    /// earliest first.
    static OPEN: RefCell<Vec<Weak<Flight>>> = const { RefCell::new(Vec::new()) };
}

/// The state of one array.
pub(crate) struct State {
    progress: RefCell<Progress>,
    /// The value of `FAILURES` when nothing that this array depends on was lost.
    intact_at: Cell<u64>,
    /// The other results of the same operation. They may fail together.
    beside: RefCell<Vec<Weak<State>>>,
}

enum Progress {
    /// Not evaluated; with the states of its inputs.
    Lazy(Vec<Rc<State>>),
    /// Part of an evaluation in progress.
    Started(Rc<Flight>),
    Evaluated,
    Lost,
}

/// An evaluation that was started.
struct Flight {
    raw: UniquePtr<sys::Flight>,
    /// The states that it computes.
    streams: Vec<RawStream>,
    /// Other evaluations whose results it uses.
    after: RefCell<Vec<Rc<Flight>>>,
    outcome: Cell<Option<Outcome>>,
    /// Its error, until a caller that needs its arrays got it.
    why: RefCell<Option<Error>>,
    /// Whether a caller that waited for one of its streams got the error.
    announced: Cell<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Good,
    Failed,
}

impl State {
    /// The state of an array that is computed from others.
    pub(crate) fn lazy(inputs: Vec<Rc<State>>) -> Rc<Self> {
        Self::new(Progress::Lazy(inputs))
    }

    /// The state of an array whose contents are available.
    pub(crate) fn evaluated() -> Rc<Self> {
        Self::new(Progress::Evaluated)
    }

    fn new(progress: Progress) -> Rc<Self> {
        Rc::new(Self {
            progress: RefCell::new(progress),
            intact_at: Cell::new(FAILURES.get()),
            beside: RefCell::default(),
        })
    }

    /// Records that these are the results of one operation.
    pub(crate) fn tie(states: &[&Rc<Self>]) {
        for state in states {
            let others = states.iter().filter(|other| !Rc::ptr_eq(other, state));
            *state.beside.borrow_mut() = others.map(|&other| Rc::downgrade(other)).collect();
        }
    }

    /// Rejects an array that a failed evaluation lost, or that depends on a lost one.
    ///
    /// Walks the array's inputs only if an evaluation has failed since the last check.
    pub(crate) fn require_intact(self: &Rc<Self>) -> Result<()> {
        let now = FAILURES.get();
        let mut seen = HashSet::new();
        let mut visited = Vec::new();
        let mut open = Vec::new();
        let mut next = Some(self.clone());
        while let Some(state) = next {
            let intact = match &*state.progress.borrow() {
                Progress::Lost => Err(Error::Lost),
                Progress::Started(flight) => flight.require_not_failed(),
                Progress::Lazy(inputs) if state.intact_at.get() != now => {
                    if seen.insert(Rc::as_ptr(&state)) {
                        open.extend(inputs.iter().cloned());
                        visited.push(state.clone());
                    }
                    Ok(())
                }
                Progress::Lazy(_) | Progress::Evaluated => Ok(()),
            };
            if let Err(error) = intact {
                self.lose();
                return Err(error);
            }
            next = open.pop();
        }
        for state in visited {
            state.intact_at.set(now);
        }
        Ok(())
    }

    fn lose(&self) {
        self.end(Progress::Lost);
    }

    /// Sets the final state, and releases the states of the inputs.
    fn end(&self, progress: Progress) {
        let former = self.progress.replace(progress);
        release(former);
    }

    fn is_lazy(&self) -> bool {
        matches!(&*self.progress.borrow(), Progress::Lazy(_))
    }

    fn beside(&self) -> Vec<Rc<State>> {
        self.beside
            .borrow()
            .iter()
            .filter_map(Weak::upgrade)
            .collect()
    }

    /// Marks the unevaluated results of the same operation as lost.
    fn lose_those_beside(&self) {
        for other in self.beside() {
            if other.is_lazy() {
                other.lose();
            }
        }
    }
}

/// Drops a state's inputs one after another: a graph may be too deep for recursion.
fn release(progress: Progress) {
    let Progress::Lazy(mut open) = progress else {
        return;
    };
    while let Some(state) = open.pop() {
        if let Some(mut last) = Rc::into_inner(state)
            && let Progress::Lazy(inputs) = last.progress.get_mut()
        {
            open.append(inputs);
        }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        release(std::mem::replace(
            self.progress.get_mut(),
            Progress::Evaluated,
        ));
    }
}

/// The states that an evaluation reaches.
struct Reached {
    lazy: Vec<Rc<State>>,
    flights: Vec<Rc<Flight>>,
}

impl Reached {
    fn from(outputs: &[Rc<State>]) -> Self {
        let mut seen = HashSet::new();
        let mut open = outputs.to_vec();
        let mut reached = Self {
            lazy: Vec::new(),
            flights: Vec::new(),
        };
        while let Some(state) = open.pop() {
            if !seen.insert(Rc::as_ptr(&state)) {
                continue;
            }
            match &*state.progress.borrow() {
                Progress::Lazy(inputs) => open.extend(inputs.iter().cloned()),
                Progress::Started(flight) => {
                    reached.wait_for(flight);
                    continue;
                }
                Progress::Evaluated | Progress::Lost => continue,
            }
            reached.lazy.push(state);
        }
        reached
    }

    fn wait_for(&mut self, flight: &Rc<Flight>) {
        if !self.flights.iter().any(|other| Rc::ptr_eq(other, flight)) {
            self.flights.push(flight.clone());
        }
    }

    /// MLX computes all results of an operation when the first one is needed.
    fn end(&self, progress: impl Fn() -> Progress) {
        for state in &self.lazy {
            state.end(progress());
            for other in state.beside() {
                if other.is_lazy() {
                    other.end(progress());
                }
            }
        }
    }

    fn lose(&self, error: &Error) {
        if is_refusal(error) {
            return;
        }
        for state in &self.lazy {
            state.lose();
            state.lose_those_beside();
        }
        FAILURES.set(FAILURES.get() + 1);
    }
}

impl Flight {
    fn start(arrays: &[sys::ArrayRef<'_>], reached: &Reached) -> Result<Rc<Self>> {
        for flight in &reached.flights {
            flight.look();
            flight.require_not_failed()?;
        }
        notice();
        let mut streams = Vec::new();
        let raw = sys::start(arrays, &mut streams).map_err(|error| {
            let error = error.into();
            if !is_refused_memory(&error) {
                // MLX also waits for what this uses, and may have thrown its error before that was marked as ended.
                for flight in reached.flights.iter().filter(|flight| flight.is_open()) {
                    streams.extend(&flight.streams);
                }
                fail_those_on(&streams, &error);
                // The caller gets the error.
                for flight in &reached.flights {
                    flight.why.take();
                }
            }
            error
        })?;
        let flight = Rc::new(Self {
            raw,
            streams,
            after: RefCell::new(reached.flights.clone()),
            outcome: Cell::new(None),
            why: RefCell::default(),
            announced: Cell::new(false),
        });
        OPEN.with_borrow_mut(|open| open.push(Rc::downgrade(&flight)));
        Ok(flight)
    }

    fn is_open(&self) -> bool {
        self.outcome.get().is_none()
    }

    fn is_on(&self, streams: &[RawStream]) -> bool {
        self.streams.iter().any(|stream| streams.contains(stream))
    }

    fn fail(&self) {
        self.outcome.set(Some(Outcome::Failed));
        FAILURES.set(FAILURES.get() + 1);
    }

    /// Records the end of the evaluation if it is over. Otherwise a thread that never waits would keep all of them.
    fn look(&self) {
        let is_over = |flight: &Self| sys::is_over(&flight.raw).unwrap_or(false);
        if self.outcome.get().is_some() {
            return;
        }
        // Few are left: those that were over when a later one started have been removed.
        let mut after = self.after.borrow_mut();
        after.retain(|flight| {
            flight.look();
            flight.outcome.get() != Some(Outcome::Good)
        });
        let all_over = after.iter().all(|flight| flight.outcome.get().is_some());
        drop(after);
        if all_over && is_over(self) {
            *self.why.borrow_mut() = self.finish().err();
        }
    }

    /// Returns the error to the first caller that asks for it.
    fn require_not_failed(&self) -> Result<()> {
        match self.outcome.get() {
            Some(Outcome::Failed) => Err(self.why.take().unwrap_or(Error::Lost)),
            Some(Outcome::Good) | None => Ok(()),
        }
    }

    /// Waits until the evaluation is over.
    ///
    /// # Errors
    ///
    /// MLX's, if its work or work that it uses failed; [`Error::Lost`] if a caller already got that error.
    fn finish(&self) -> Result<()> {
        if self.outcome.get().is_some() {
            return self.require_not_failed();
        }
        let before = self.after.take();
        let earlier = before.iter().map(|flight| flight.finish());
        // Wait for all streams, failed or not: afterwards no work of this evaluation runs.
        let earlier = earlier.fold(Ok(()), Result::and);
        let own = sys::finish(&self.raw).map_err(Error::from);
        let failed_here = own.as_ref().err().cloned();
        let result = earlier.and(own);
        if let Err(error) = &result {
            if is_refusal(error) {
                *self.after.borrow_mut() = before;
                return result;
            }
            self.fail();
            // The caller gets the error.
            self.why.take();
            if let Some(error) = failed_here {
                fail_those_on(&self.streams, &error);
            }
        } else {
            self.outcome.set(Some(Outcome::Good));
        }
        result
    }
}

/// Evaluates arrays and waits for them.
pub(crate) fn evaluate(arrays: &[sys::ArrayRef<'_>], outputs: &[Rc<State>]) -> Result<()> {
    refuse_in_hook()?;
    notice();
    let reached = Reached::from(outputs);
    let run = || {
        if reached.lazy.is_empty() {
            return reached
                .flights
                .iter()
                .try_for_each(|flight| flight.finish());
        }
        Flight::start(arrays, &reached)?.finish()
    };
    run().inspect_err(|error| reached.lose(error))?;
    reached.end(|| Progress::Evaluated);
    Ok(())
}

/// Starts the evaluation of arrays.
pub(crate) fn start(arrays: &[sys::ArrayRef<'_>], outputs: &[Rc<State>]) -> Result<()> {
    refuse_in_hook()?;
    let reached = Reached::from(outputs);
    if reached.lazy.is_empty() {
        return Ok(());
    }
    let flight = Flight::start(arrays, &reached).inspect_err(|error| reached.lose(error))?;
    reached.end(|| Progress::Started(flight.clone()));
    Ok(())
}

/// Records the end of evaluations that are over. Call it before anything that may consume an error of a stream:
/// afterwards it is not known whether the error was theirs.
fn notice() {
    let open: Vec<_> = OPEN.with_borrow(|open| open.iter().filter_map(Weak::upgrade).collect());
    let mut busy: Vec<RawStream> = Vec::new();
    for flight in &open {
        // One after another on a stream.
        if !flight.is_on(&busy) {
            flight.look();
            if flight.is_open() {
                busy.extend(&flight.streams);
            }
        }
    }
    OPEN.with_borrow_mut(|open| {
        let is_of_interest = |flight: &Flight| flight.is_open() || flight.why.borrow().is_some();
        open.retain(|flight| {
            flight
                .upgrade()
                .is_some_and(|flight| is_of_interest(&flight))
        });
    });
}

/// Waits until all work that was started on a stream is over.
pub(crate) fn synchronize(stream: RawStream) -> Result<()> {
    refuse_in_hook()?;
    notice();
    let mut result = sys::synchronize(stream).map_err(Error::from);
    if let Err(error) = &result {
        fail_those_on(&[stream], error);
    }
    // The error may already be recorded, or come from work that this uses, which MLX does not track. Return it once.
    notice();
    let open: Vec<_> = OPEN.with_borrow(|open| open.iter().filter_map(Weak::upgrade).collect());
    for flight in open.iter().filter(|flight| flight.is_on(&[stream])) {
        if let Some(error) = flight.why.borrow().clone()
            && !flight.announced.replace(true)
        {
            result = result.and(Err(error));
        }
    }
    result
}

/// Marks the evaluations on these streams as failed unless their end is known.
///
/// MLX keeps one error per stream, throws it once, and then forgets it. After that, work that failed earlier and was not
/// waited for would look successful.
pub(crate) fn fail_those_on(streams: &[RawStream], error: &Error) {
    if is_refusal(error) {
        return;
    }
    let open: Vec<_> = OPEN.with_borrow(|open| open.iter().filter_map(Weak::upgrade).collect());
    for flight in open {
        if flight.is_open() && flight.is_on(streams) {
            flight.fail();
            *flight.why.borrow_mut() = Some(error.clone());
        }
    }
}

/// Whether the calling thread itself could not allocate memory. On a GPU no other thread allocates, so it is not a
/// stream's error.
fn is_refused_memory(error: &Error) -> bool {
    let of_gpu = |flight: &Flight| {
        let mut streams = flight.streams.iter();
        streams.all(|stream| stream.device == DeviceKind::Gpu)
    };
    let open = |open: &Vec<Weak<Flight>>| {
        let mut flights = open.iter().filter_map(Weak::upgrade);
        flights.all(|flight| of_gpu(&flight))
    };
    matches!(error, Error::OutOfMemory { bytes } if *bytes > 0) && OPEN.with_borrow(open)
}

/// Whether the call was rejected before it reached MLX.
fn is_refusal(error: &Error) -> bool {
    matches!(
        error,
        Error::ThreadEnding | Error::ProcessEnding | Error::ProcessForked
    )
}

/// Rejects an evaluation inside a policy hook, before the evaluation that waits for the hook's answer loses anything.
fn refuse_in_hook() -> Result<()> {
    if sys::in_policy_hook() {
        Err(Error::InPolicyHook)
    } else {
        Ok(())
    }
}
