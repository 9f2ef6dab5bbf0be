//! What is known of an array's contents.
//!
//! MLX marks arrays as evaluated when their kernels are queued, and hands out their memory even if a kernel failed
//! later. So this crate keeps a graph of its own, of states alone: a successful evaluation marks everything that it
//! reached, and a failed one loses what it reached and what depends on that. States hold no memory of MLX's, which
//! therefore reuses buffers as ever.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::{Rc, Weak};

use cxx::UniquePtr;
use mlx_overlay_sys::{self as sys, DeviceKind, RawStream};

use crate::{Error, Result};

thread_local! {
    /// Counts this thread's failed evaluations.
    static FAILURES: Cell<u64> = const { Cell::new(0) };
    /// This thread's evaluations of which it is not known how they end, or nobody was told; the earliest first.
    static OPEN: RefCell<Vec<Weak<Flight>>> = const { RefCell::new(Vec::new()) };
}

/// The state of one array.
pub(crate) struct State {
    progress: RefCell<Progress>,
    /// How many failures there had been when nothing that this depends on was lost.
    intact_at: Cell<u64>,
    /// Other results of the same operation. They may share what fails.
    beside: RefCell<Vec<Weak<State>>>,
}

enum Progress {
    /// Not evaluated; the states that it is computed from.
    Lazy(Vec<Rc<State>>),
    /// Part of an evaluation that was started.
    Started(Rc<Flight>),
    Evaluated,
    Lost,
}

/// An evaluation that was started.
struct Flight {
    raw: UniquePtr<sys::Flight>,
    /// Those that have part in it.
    streams: Vec<RawStream>,
    /// Others whose results it uses.
    after: RefCell<Vec<Rc<Flight>>>,
    outcome: Cell<Option<Outcome>>,
    /// Why it failed, if nobody was told yet who asked for its arrays.
    why: RefCell<Option<Error>>,
    /// Whether somebody was told who waited for a stream of it.
    announced: Cell<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Good,
    Failed,
}

impl State {
    /// Of an array that is computed from others.
    pub(crate) fn lazy(inputs: Vec<Rc<State>>) -> Rc<Self> {
        Self::new(Progress::Lazy(inputs))
    }

    /// Of an array whose contents are there.
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

    /// Notes that these are the results of one operation.
    pub(crate) fn tie(states: &[&Rc<Self>]) {
        for state in states {
            let others = states.iter().filter(|other| !Rc::ptr_eq(other, state));
            *state.beside.borrow_mut() = others.map(|&other| Rc::downgrade(other)).collect();
        }
    }

    /// Refuses an array that a failed evaluation left behind, or that depends on one.
    ///
    /// It looks at what the array is computed from only if an evaluation failed since it last did.
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

    /// Sets what is final, and lets go of what it was computed from.
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

    /// Loses the results of the same operation that were not evaluated.
    fn lose_those_beside(&self) {
        for other in self.beside() {
            if other.is_lazy() {
                other.lose();
            }
        }
    }
}

/// Drops a state's inputs one after another: a graph may be deeper than the stack.
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

/// What an evaluation reaches.
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

    /// MLX computes all results of an operation with the first that is asked for.
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
                // MLX looks at what this uses, too, and may have thrown an error of that before its end was marked.
                for flight in reached.flights.iter().filter(|flight| flight.is_open()) {
                    streams.extend(&flight.streams);
                }
                fail_those_on(&streams, &error);
                // The caller is told.
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

    /// Takes notice if it is over. Whoever never waits would else keep every evaluation there was.
    fn look(&self) {
        let is_over = |flight: &Self| sys::is_over(&flight.raw).unwrap_or(false);
        if self.outcome.get().is_some() {
            return;
        }
        // Few, for those that were over when a later one started are gone.
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

    /// The first who asks is told why it failed.
    fn require_not_failed(&self) -> Result<()> {
        match self.outcome.get() {
            Some(Outcome::Failed) => Err(self.why.take().unwrap_or(Error::Lost)),
            Some(Outcome::Good) | None => Ok(()),
        }
    }

    /// Waits until it is over.
    ///
    /// # Errors
    ///
    /// MLX's, if work of it or of what it uses failed; [`Error::Lost`] if somebody was told.
    fn finish(&self) -> Result<()> {
        if self.outcome.get().is_some() {
            return self.require_not_failed();
        }
        let before = self.after.take();
        let earlier = before.iter().map(|flight| flight.finish());
        // All of them, failed or not: after this nothing of it runs.
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
            // The caller is told.
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

/// Ends the evaluations that are over. To be called before what may take an error of a stream away: afterwards nobody
/// can tell whether it was theirs.
fn notice() {
    let open: Vec<_> = OPEN.with_borrow(|open| open.iter().filter_map(Weak::upgrade).collect());
    let mut busy: Vec<RawStream> = Vec::new();
    for flight in &open {
        // On a stream one after another.
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

/// Waits until all that was started on a stream is over.
pub(crate) fn synchronize(stream: RawStream) -> Result<()> {
    refuse_in_hook()?;
    notice();
    let mut result = sys::synchronize(stream).map_err(Error::from);
    if let Err(error) = &result {
        fail_those_on(&[stream], error);
    }
    // Its error may have been noticed before, or be that of what it uses, which MLX does not know. It is told once.
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

/// Fails the evaluations on these streams of which it is not known how they end.
///
/// MLX keeps one error a stream, throws it once, and then forgets it. So when it was thrown, what failed before it and
/// had not been waited for looks like a success afterwards.
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

/// Whether it is memory that the calling thread did not get. On a GPU no other thread allocates, so that it is no
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

/// Whether MLX was not entered.
fn is_refusal(error: &Error) -> bool {
    matches!(
        error,
        Error::ThreadEnding | Error::ProcessEnding | Error::ProcessForked
    )
}

/// Refused before anything of the evaluation that waits for the hook's answer is lost.
fn refuse_in_hook() -> Result<()> {
    if sys::in_policy_hook() {
        Err(Error::InPolicyHook)
    } else {
        Ok(())
    }
}
