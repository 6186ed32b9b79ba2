//! Replies to orders whose callers run on other threads.
//!
//! To wake a task of another thread's runtime costs a lock and often a system call. A batch has
//! hundreds of callers on a few threads, so the replies of a batch travel together: one message for
//! each thread, which then wakes its own tasks. A thread that wants this has a [`ReplyThread`];
//! replies to the callers on all others are sent one by one.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    sync::{
        PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::{runtime::Handle, sync::oneshot};

use crate::{StockError, request::Reply};

type ReplyResult = Result<Reply, StockError>;

thread_local! {
    /// The number of this thread, if it gets its replies together.
    static THREAD: Cell<Option<u64>> = const { Cell::new(None) };
    /// Replies of a batch, until all of them are known. `None`: they are sent one by one.
    static TOGETHER: RefCell<Option<Vec<Addressed>>> = const { RefCell::new(None) };
}

/// The runtimes of the threads that get their replies together.
static RUNTIMES: RwLock<Option<HashMap<u64, Handle>>> = RwLock::new(None);

/// A thread whose runtime runs the callers of many orders. It gets the replies of a batch in one
/// message. Dropping it, on the same thread, ends that.
#[derive(Debug)]
pub struct ReplyThread {
    number: u64,
    /// It belongs to its thread.
    _not_send: std::marker::PhantomData<*const ()>,
}

impl ReplyThread {
    /// From now on the replies to orders that are placed on this thread travel together. `runtime`
    /// runs on this thread alone.
    pub fn begin(runtime: &Handle) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut runtimes = RUNTIMES.write().unwrap_or_else(PoisonError::into_inner);
        let runtimes = runtimes.get_or_insert_default();
        runtimes.insert(number, runtime.clone());
        THREAD.set(Some(number));
        Self {
            number,
            _not_send: std::marker::PhantomData,
        }
    }
}

impl Drop for ReplyThread {
    fn drop(&mut self) {
        THREAD.set(None);
        let mut runtimes = RUNTIMES.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(runtimes) = runtimes.as_mut() {
            runtimes.remove(&self.number);
        }
    }
}

/// Sends the reply to one order.
#[derive(Debug)]
pub(crate) struct ReplySender {
    sender: oneshot::Sender<ReplyResult>,
    /// The thread of the caller, if it gets its replies together.
    thread: Option<u64>,
}

impl ReplySender {
    /// For a caller on this thread.
    pub(crate) fn new() -> (Self, oneshot::Receiver<ReplyResult>) {
        let (sender, receiver) = oneshot::channel();
        let thread = THREAD.get();
        (Self { sender, thread }, receiver)
    }

    /// Whether the caller is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Sends the reply, or keeps it for the end of [`together`]. A caller that is gone is not an
    /// error.
    pub(crate) fn send(self, reply: ReplyResult) {
        let Self { sender, thread } = self;
        let Some(thread) = thread.filter(|thread| THREAD.get() != Some(*thread)) else {
            return drop(sender.send(reply));
        };
        let addressed = Addressed {
            thread,
            sender,
            reply,
        };
        let alone = TOGETHER.with_borrow_mut(|together| match together {
            Some(replies) => {
                replies.push(addressed);
                None
            }
            None => Some(addressed),
        });
        if let Some(alone) = alone {
            deliver(vec![alone]);
        }
    }
}

/// A reply to a caller on another thread.
struct Addressed {
    thread: u64,
    sender: oneshot::Sender<ReplyResult>,
    reply: ReplyResult,
}

/// Calls `send`, and delivers all replies that it sends together.
pub(crate) fn together<T>(send: impl FnOnce() -> T) -> T {
    // One within another leaves its replies to the outer one.
    let is_outer = TOGETHER.with_borrow_mut(|together| {
        let is_outer = together.is_none();
        together.get_or_insert_default();
        is_outer
    });
    // Not `then_some`: one that is dropped delivers.
    let delivery = if is_outer { Some(Delivery) } else { None };
    let sent = send();
    drop(delivery);
    sent
}

/// Delivers what was sent when it is dropped, also after a panic.
struct Delivery;

impl Drop for Delivery {
    fn drop(&mut self) {
        let replies = TOGETHER.with_borrow_mut(Option::take).unwrap_or_default();
        if !replies.is_empty() {
            deliver(replies);
        }
    }
}

/// One message for each thread. They are few, so they are found one after another.
fn deliver(mut replies: Vec<Addressed>) {
    while let Some(first) = replies.first() {
        let thread = first.thread;
        let of_thread = |addressed: &mut Addressed| addressed.thread == thread;
        let message = if replies.iter().all(|addressed| addressed.thread == thread) {
            std::mem::take(&mut replies)
        } else {
            replies.extract_if(.., of_thread).collect()
        };
        deliver_to(thread, message);
    }
}

fn deliver_to(thread: u64, message: Vec<Addressed>) {
    let send_all = move || {
        for Addressed { sender, reply, .. } in message {
            // A caller that is gone is not an error.
            let _ = sender.send(reply);
        }
    };
    let runtimes = RUNTIMES.read().unwrap_or_else(PoisonError::into_inner);
    match runtimes.as_ref().and_then(|runtimes| runtimes.get(&thread)) {
        // If the runtime ends before it does so, its callers have ended too.
        Some(runtime) => drop(runtime.spawn(async move { send_all() })),
        None => send_all(),
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use tokio::{
        runtime::{Builder, Handle},
        sync::oneshot,
    };

    use super::{ReplyResult, ReplySender, ReplyThread, THREAD, together};
    use crate::request::Reply;

    type Receiver = oneshot::Receiver<ReplyResult>;

    /// A thread that has placed orders. Its runtime runs once [`Caller::received`] is called.
    struct Caller {
        runtime: Handle,
        senders: Vec<ReplySender>,
        run: mpsc::Sender<Vec<Receiver>>,
        count: mpsc::Receiver<usize>,
        thread: thread::JoinHandle<()>,
        receivers: Vec<Receiver>,
    }

    impl Caller {
        fn with(orders: usize) -> Self {
            let (begun, beginning) = mpsc::channel();
            let (run, running) = mpsc::channel::<Vec<Receiver>>();
            let (counted, count) = mpsc::channel();
            let thread = thread::spawn(move || {
                let runtime = Builder::new_current_thread().build().unwrap();
                let _thread = ReplyThread::begin(runtime.handle());
                let placed: Vec<_> = (0..orders).map(|_| ReplySender::new()).collect();
                begun.send((runtime.handle().clone(), placed)).unwrap();
                for receivers in running {
                    let mut received = 0;
                    for receiver in receivers {
                        let reply = runtime.block_on(receiver);
                        received += usize::from(matches!(reply, Ok(Ok(Reply::SoldOut))));
                    }
                    counted.send(received).unwrap();
                }
            });
            let (runtime, placed) = beginning.recv().unwrap();
            let (senders, receivers) = placed.into_iter().unzip();
            Self {
                runtime,
                senders,
                run,
                count,
                thread,
                receivers,
            }
        }

        /// Messages that wait for the runtime.
        fn messages(&self) -> usize {
            self.runtime.metrics().global_queue_depth()
        }

        /// Has the thread receive its replies, and returns how many there were.
        fn received(&mut self) -> usize {
            self.run.send(std::mem::take(&mut self.receivers)).unwrap();
            self.count.recv().unwrap()
        }

        fn end(self) -> Vec<Receiver> {
            drop(self.run);
            self.thread.join().unwrap();
            self.receivers
        }
    }

    fn sold_out() -> ReplyResult {
        Ok(Reply::SoldOut)
    }

    #[test]
    fn the_replies_of_a_batch_reach_each_thread_in_one_message() {
        let mut callers = [Caller::with(3), Caller::with(2)];
        let mut senders = callers
            .each_mut()
            .map(|caller| std::mem::take(&mut caller.senders));
        together(|| {
            together(|| senders[0].pop().unwrap().send(sold_out()));
            for sender in senders.iter_mut().flat_map(|senders| senders.drain(..)) {
                sender.send(sold_out());
            }
            assert_eq!(callers.each_ref().map(Caller::messages), [0, 0]);
        });
        assert_eq!(callers.each_ref().map(Caller::messages), [1, 1]);
        assert_eq!(callers.each_mut().map(Caller::received), [3, 2]);
        callers.into_iter().for_each(|caller| drop(caller.end()));
    }

    #[test]
    fn a_reply_outside_of_a_batch_arrives_too() {
        let mut caller = Caller::with(1);
        caller.senders.remove(0).send(sold_out());
        assert_eq!((caller.messages(), caller.received()), (1, 1));
        caller.end();
    }

    #[test]
    fn a_panic_in_a_batch_delivers_the_replies_before_it() {
        let mut caller = Caller::with(1);
        let sender = caller.senders.remove(0);
        let batch = move || {
            together(|| {
                sender.send(sold_out());
                panic!("this panic is part of the test");
            });
        };
        assert!(thread::spawn(batch).join().is_err());
        assert_eq!(caller.received(), 1);
        caller.end();
    }

    #[test]
    fn a_reply_to_a_thread_that_has_ended_is_not_kept() {
        let mut caller = Caller::with(1);
        let sender = caller.senders.remove(0);
        let mut receiver = caller.end().remove(0);
        together(|| sender.send(sold_out()));
        assert!(matches!(receiver.try_recv(), Ok(Ok(Reply::SoldOut))));
    }

    #[test]
    fn a_caller_on_an_ordinary_thread_gets_its_reply_at_once() {
        assert_eq!(THREAD.get(), None);
        let (sender, mut receiver) = ReplySender::new();
        together(|| {
            sender.send(sold_out());
            assert!(matches!(receiver.try_recv(), Ok(Ok(Reply::SoldOut))));
        });
    }
}
