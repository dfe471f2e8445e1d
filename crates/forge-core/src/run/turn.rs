//! Whose turn it is when events come faster than runs end (SPEC.md section 4, `sync: ordered`; docs/adr/0020).
//!
//! Every event makes a Job, and every Job wants the same: that what the branch holds now is deployed. So there are two
//! seats for an environment, `turn` for the one that deploys and `next` for the one that waits. Whoever finds `next`
//! taken leaves: the one who sits there reads the branch after it has stood up, which is later than now, and so deploys
//! what the one who left was asked for. At most one deploys and one waits, however many events there are.
//!
//! Nor does a turn begin until the one before it is ten seconds old. A push that comes alone is deployed at once, and those
//! of a burst gather behind it: ten seconds of them are at most two runs, however short a run is.
//!
//! A step follows from the seats and the time, and from nothing that a process remembers (INV-3): one that was killed and
//! started again under its name goes on where it was.

use jiff::{SignedDuration, Timestamp};

/// From the beginning of a turn to that of the next one, at least.
const BETWEEN: SignedDuration = SignedDuration::from_secs(10);

/// A place that one Job at a time can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Seat {
    /// Waiting.
    Next,
    /// Deploying.
    Turn,
}

impl Seat {
    /// The name of its Lease. Names of environments have no dot, so it is nobody else's.
    pub fn lease(self, environment: &crate::name::EnvironmentName) -> String {
        match self {
            Self::Next => format!("forge-{environment}.next"),
            Self::Turn => format!("forge-{environment}.turn"),
        }
    }
}

/// Who has a seat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sitting {
    /// The name of the Job.
    pub name: String,
    /// It said so lately.
    pub alive: bool,
}

/// Both seats, and what else keeps an environment busy, as they were read together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seats {
    /// Who waits.
    pub next: Option<Sitting>,
    /// Who deploys.
    pub turn: Option<Sitting>,
    /// When the turn was taken last, also by somebody who has stood up since.
    pub taken: Option<Timestamp>,
    /// A run that is in progress and that nobody with the turn started: a person's.
    pub run: Option<String>,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Take a seat, if it is still as it was read.
    Take(Seat),
    /// Stand up from a seat.
    Give(Seat),
    /// Read the branch and deploy what it holds; then stand up from the turn.
    Deploy,
    /// Wait for this run or Job to end.
    Wait(String),
    /// Let pushes gather for so long: the last turn began just now.
    Gather(SignedDuration),
    /// Nothing: this Job waits already, and will deploy what the branch holds then.
    Leave(String),
}

/// The next step of the Job of this name.
pub fn step(name: &str, seats: &Seats, now: Timestamp) -> Step {
    let mine = |seat: &Option<Sitting>| seat.as_ref().is_some_and(|sitting| sitting.name == name);
    let others = |seat: &Option<Sitting>| {
        let other = seat.as_ref().filter(|sitting| sitting.alive && sitting.name != name);
        other.map(|sitting| sitting.name.clone())
    };
    if mine(&seats.turn) {
        // Before the branch is read: who comes then must find the seat empty, because it may be for a later commit.
        return if mine(&seats.next) { Step::Give(Seat::Next) } else { Step::Deploy };
    }
    if mine(&seats.next) {
        return match (others(&seats.turn).or_else(|| seats.run.clone()), rest(seats, now)) {
            (Some(busy), _) => Step::Wait(busy),
            (None, Some(rest)) => Step::Gather(rest),
            (None, None) => Step::Take(Seat::Turn),
        };
    }
    match others(&seats.next) {
        Some(waiting) => Step::Leave(waiting),
        None => Step::Take(Seat::Next),
    }
}

/// How long nobody takes the turn yet. It was taken by the clock of another node: one that is far ahead keeps nobody.
fn rest(seats: &Seats, now: Timestamp) -> Option<SignedDuration> {
    let since = now.duration_since(seats.taken?);
    (since.abs() < BETWEEN).then(|| BETWEEN - since)
}

/// How often in a row a deployment that ended with a conflict is begun again although nobody is at work.
const MOST_CONFLICTS: u32 = 3;

/// Whether to deploy again after so many conflicts in a row for which nobody can be waited for: whoever was faster has
/// ended meanwhile, or two writes met. The push must not be lost with them. What is in conflict each time stays so.
pub fn again(conflicts: u32) -> bool {
    conflicts <= MOST_CONFLICTS
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sitting(name: &str, alive: bool) -> Option<Sitting> {
        Some(Sitting { name: name.to_owned(), alive })
    }

    #[test]
    fn every_state_of_the_seats_has_one_step() {
        let seats = |next, turn, run: Option<&str>| Seats { next, turn, run: run.map(str::to_owned), taken: None };
        let (me, other) = (|| sitting("me", true), || sitting("other", true));
        let cases = [
            (seats(None, None, None), Step::Take(Seat::Next)),
            // Who waits stands for all who come after it.
            (seats(other(), None, None), Step::Leave("other".to_owned())),
            (seats(other(), other(), None), Step::Leave("other".to_owned())),
            // One that is gone stands for nobody.
            (seats(sitting("gone", false), None, None), Step::Take(Seat::Next)),
            (seats(None, other(), None), Step::Take(Seat::Next)),
            (seats(me(), other(), None), Step::Wait("other".to_owned())),
            (seats(me(), None, Some("dev-1")), Step::Wait("dev-1".to_owned())),
            (seats(me(), sitting("gone", false), None), Step::Take(Seat::Turn)),
            (seats(me(), None, None), Step::Take(Seat::Turn)),
            // It was killed between the two.
            (seats(me(), me(), None), Step::Give(Seat::Next)),
            // It was killed while it deployed, and the run is its own.
            (seats(None, me(), Some("dev-1")), Step::Deploy),
            (seats(other(), me(), None), Step::Deploy),
        ];
        for (seats, expected) in cases {
            assert_eq!(step("me", &seats, Timestamp::UNIX_EPOCH), expected, "{seats:?}");
        }
    }

    #[test]
    fn who_waits_lets_pushes_gather_until_the_last_turn_is_old_enough_and_no_clock_that_is_wrong_keeps_it() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let seats = |ago: i64| {
            let taken = now.checked_sub(SignedDuration::from_millis(ago)).unwrap();
            Seats { next: sitting("me", true), taken: Some(taken), ..Seats::default() }
        };
        let after = |ago: i64| step("me", &seats(ago), now);
        assert_eq!(after(0), Step::Gather(BETWEEN));
        assert_eq!(after(9_999), Step::Gather(SignedDuration::from_millis(1)));
        assert_eq!(after(10_000), Step::Take(Seat::Turn));
        // The clock of whoever took it is a little ahead of ours, or far.
        assert_eq!(after(-2_000), Step::Gather(SignedDuration::from_secs(12)));
        assert_eq!(after(-3_600_000), Step::Take(Seat::Turn));
        // Only who would begin has to: not who comes, not who deploys already, and who waits for a run does that.
        let comes = Seats { next: None, ..seats(0) };
        assert_eq!(step("me", &comes, now), Step::Take(Seat::Next));
        let deploys = Seats { next: None, turn: sitting("me", true), ..seats(0) };
        assert_eq!(step("me", &deploys, now), Step::Deploy);
        let waits = Seats { turn: sitting("other", true), ..seats(0) };
        assert_eq!(step("me", &waits, now), Step::Wait("other".to_owned()));
    }

    #[test]
    fn the_seats_of_one_environment_are_never_the_lease_of_another() {
        let environment: crate::name::EnvironmentName = "dev".parse().unwrap();
        for seat in [Seat::Next, Seat::Turn] {
            let name = seat.lease(&environment);
            assert!(name.strip_prefix("forge-").unwrap().parse::<crate::name::EnvironmentName>().is_err(), "{name}");
        }
    }

    /// What happens to a world of seats, a branch, and Jobs that are each between any two requests.
    #[derive(Debug, Clone, Copy)]
    enum Event {
        /// A commit is pushed, and a Job made for it.
        Push,
        /// The same delivery once more: a Job of that name is there already.
        Replay,
        /// A Job reads the seats.
        Read(usize),
        /// A Job does what follows from what it read, however long ago; a write fails where something else was written.
        Act(usize),
        /// The run of whoever deploys ends.
        End,
        /// The executor of whoever deploys ends with a conflict, and nothing was deployed.
        Conflict,
        /// A Job's process is killed and started again.
        Kill(usize),
        /// A person starts a run, or it ends.
        Person,
        /// So many milliseconds pass.
        Pass(i64),
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            3 => Just(Event::Push),
            1 => Just(Event::Replay),
            6 => any::<usize>().prop_map(Event::Read),
            6 => any::<usize>().prop_map(Event::Act),
            2 => Just(Event::End),
            1 => Just(Event::Conflict),
            1 => any::<usize>().prop_map(Event::Kill),
            1 => Just(Event::Person),
            2 => (0_i64..15_000).prop_map(Event::Pass),
        ]
    }

    #[derive(Debug, Default, Clone, PartialEq, Eq)]
    enum Doing {
        #[default]
        Nothing,
        /// It read the seats, at these versions and then.
        Read(Seats, [u64; 2], Timestamp),
        /// It read the branch and deploys this.
        Deploying(u64),
        Left,
    }

    #[derive(Debug, Default)]
    struct World {
        now: Timestamp,
        /// The commit that the branch holds: a number that grows.
        tip: u64,
        deployed: u64,
        seats: Seats,
        versions: [u64; 2],
        jobs: Vec<Doing>,
        /// Runs that really began.
        runs: usize,
        /// Conflicts in a row while nobody else was at work.
        conflicts: u32,
        /// A Job met too many of them.
        gave_up: bool,
    }

    impl World {
        fn push(&mut self) {
            self.tip += 1;
            self.jobs.push(Doing::Nothing);
        }

        fn at(seat: Seat) -> usize {
            usize::from(seat == Seat::Turn)
        }

        fn write(&mut self, seat: Seat, sitting: Option<Sitting>) {
            self.versions[Self::at(seat)] += 1;
            match seat {
                Seat::Next => self.seats.next = sitting,
                Seat::Turn => self.seats.turn = sitting,
            }
        }

        fn pass(&mut self, milliseconds: i64) {
            self.now = self.now.checked_add(SignedDuration::from_millis(milliseconds)).unwrap();
        }

        /// A turn begins, never sooner after another one, whatever has happened.
        fn begin(&mut self) {
            let last = self.seats.taken.replace(self.now);
            assert!(last.is_none_or(|last| self.now.duration_since(last) >= BETWEEN), "{last:?} {self:?}");
        }

        fn act(&mut self, job: usize) {
            let Doing::Read(seats, versions, read) = std::mem::take(&mut self.jobs[job]) else { return };
            let name = format!("job-{job}");
            match step(&name, &seats, read) {
                Step::Leave(_) => self.jobs[job] = Doing::Left,
                Step::Wait(_) | Step::Gather(_) => {}
                Step::Deploy => {
                    self.jobs[job] = Doing::Deploying(self.tip);
                    // Where all of it is proven nothing is started.
                    self.runs += usize::from(self.deployed != self.tip);
                }
                Step::Take(seat) if self.versions[Self::at(seat)] == versions[Self::at(seat)] => {
                    if seat == Seat::Turn {
                        self.begin();
                    }
                    self.write(seat, sitting(&name, true));
                }
                Step::Give(seat) if self.versions[Self::at(seat)] == versions[Self::at(seat)] => self.write(seat, None),
                Step::Take(_) | Step::Give(_) => {}
            }
        }

        fn end(&mut self) {
            for job in 0..self.jobs.len() {
                if let Doing::Deploying(commit) = self.jobs[job] {
                    self.deployed = self.deployed.max(commit);
                    self.write(Seat::Turn, None);
                    self.jobs[job] = Doing::Left;
                    self.conflicts = 0;
                }
            }
        }

        fn conflict(&mut self) {
            let Some(job) = self.jobs.iter().position(|job| matches!(job, Doing::Deploying(_))) else { return };
            // A person's run is waited for, however often.
            self.conflicts = if self.seats.run.is_some() { 0 } else { self.conflicts + 1 };
            if again(self.conflicts) {
                // It begins anew, and reads the branch anew.
                self.jobs[job] = Doing::Deploying(self.tip);
            } else {
                self.write(Seat::Turn, None);
                self.jobs[job] = Doing::Left;
                self.conflicts = 0;
                self.gave_up = true;
            }
        }

        fn happens(&mut self, event: Event) {
            let picked = |n: usize, jobs: &[Doing]| if jobs.is_empty() { None } else { Some(n % jobs.len()) };
            match event {
                Event::Push => self.push(),
                Event::Replay => {}
                Event::Read(n) => {
                    if let Some(job) = picked(n, &self.jobs)
                        && !matches!(self.jobs[job], Doing::Left | Doing::Deploying(_))
                    {
                        self.jobs[job] = Doing::Read(self.seats.clone(), self.versions, self.now);
                    }
                }
                Event::Act(n) => {
                    if let Some(job) = picked(n, &self.jobs)
                        && matches!(self.jobs[job], Doing::Read(..))
                    {
                        self.act(job);
                    }
                }
                Event::End => self.end(),
                Event::Conflict => self.conflict(),
                Event::Kill(n) => {
                    if let Some(job) = picked(n, &self.jobs)
                        && self.jobs[job] != Doing::Left
                    {
                        self.jobs[job] = Doing::Nothing;
                    }
                }
                Event::Person => {
                    self.seats.run = if self.seats.run.is_some() { None } else { Some("a-person-1".to_owned()) };
                }
                Event::Pass(milliseconds) => self.pass(milliseconds),
            }
            let deploying = self.jobs.iter().filter(|job| matches!(job, Doing::Deploying(_))).count();
            assert!(deploying <= 1, "{self:?}");
        }

        /// Jobs that have not ended.
        fn open(&self) -> Vec<usize> {
            (0..self.jobs.len()).filter(|job| self.jobs[*job] != Doing::Left).collect()
        }

        /// Everybody looks at the same time, and then does what follows.
        fn together(&mut self) {
            let open = self.open();
            for job in &open {
                self.happens(Event::Read(*job));
            }
            for job in &open {
                self.happens(Event::Act(*job));
            }
        }

        /// Everybody goes on until nobody has anything left to do.
        fn settle(&mut self) {
            self.seats.run = None;
            for _ in 0..4 * self.jobs.len() + 8 {
                for job in self.open() {
                    self.happens(Event::Read(job));
                    self.happens(Event::Act(job));
                }
                self.end();
                self.happens(Event::Pass(10_000));
            }
        }
    }

    #[test]
    fn a_conflict_after_which_nobody_is_at_work_loses_no_push_and_one_that_stays_ends() {
        let mut world = World::default();
        world.push();
        for _ in 0..4 {
            world.happens(Event::Read(0));
            world.happens(Event::Act(0));
        }
        assert_eq!(world.jobs, [Doing::Deploying(1)]);
        // A person was faster, and has ended when the Job looks; meanwhile somebody pushed.
        world.tip += 1;
        for _ in 0..MOST_CONFLICTS {
            world.happens(Event::Conflict);
            assert_eq!(world.jobs, [Doing::Deploying(2)]);
        }
        let mut stays = World { jobs: world.jobs.clone(), conflicts: world.conflicts, tip: 2, ..World::default() };
        world.happens(Event::End);
        assert_eq!((world.deployed, world.gave_up), (2, false));
        stays.happens(Event::Conflict);
        assert_eq!((stays.deployed, stays.gave_up, &stays.jobs[..]), (0, true, &[Doing::Left][..]));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(forge_testkit::cases(2000)))]

        #[test]
        fn however_pushes_starts_kills_and_ends_mix_the_last_commit_is_deployed(
            events in proptest::collection::vec(event(), 0..120)
        ) {
            let mut world = World::default();
            for event in events {
                world.happens(event);
            }
            world.settle();
            prop_assert!(world.deployed == world.tip || world.gave_up, "{:?}", world);
            prop_assert!(world.jobs.iter().all(|job| *job == Doing::Left), "{:?}", world);
            prop_assert_eq!((&world.seats.next, &world.seats.turn), (&None, &None));
        }

        #[test]
        fn a_burst_during_a_run_gives_one_more_run(order in proptest::collection::vec(any::<usize>(), 0..400)) {
            let mut world = World::default();
            world.push();
            for _ in 0..4 {
                world.happens(Event::Read(0));
                world.happens(Event::Act(0));
            }
            prop_assert_eq!(world.runs, 1);
            for n in 0..100 {
                world.push();
                for job in order.iter().skip(n * 4).take(4) {
                    world.happens(Event::Read(*job));
                    world.happens(Event::Act(*job));
                }
            }
            world.settle();
            prop_assert_eq!(world.deployed, 101);
            prop_assert_eq!(world.runs, 2, "{:?}", world);
        }

        #[test]
        fn ten_seconds_of_pushes_give_at_most_two_runs_however_short_a_run_is_and_each_ten_more_at_most_one(
            before in proptest::option::of(0_i64..20_000),
            slowness in prop_oneof![Just(1_i64), 2_i64..40],
            pushes in proptest::collection::vec((0_i64..100, 0_usize..6, any::<bool>()), 100),
        ) {
            let mut world = World::default();
            if let Some(before) = before {
                // A turn of an earlier push.
                world.seats.taken = Some(world.now);
                world.pass(before);
            }
            let (begun, mut last) = (world.now, world.now);
            for (pause, looks, ends) in pushes {
                last = world.now;
                world.push();
                for _ in 0..looks {
                    world.together();
                }
                if ends {
                    world.end();
                }
                world.pass(pause * slowness);
            }
            world.settle();
            let tens = usize::try_from(last.duration_since(begun).as_secs() / 10).unwrap();
            prop_assert_eq!(world.deployed, 100);
            prop_assert!(world.runs <= 2 + tens, "{} runs: {:?}", world.runs, world);
        }
    }
}
