//! What the tables say, in English and in Chinese.

use std::path::Path;

use crate::matrix::{
    fault::Fault,
    load::Figures,
    trial::Counts,
    verdict::{Cell, Fate, Outcome},
};

/// The words of one language.
#[derive(Debug, Clone, Copy)]
pub struct Words {
    pub(super) backend: &'static str,
    pub(super) faults: [&'static str; 7],
    pub(super) one_inside: &'static str,
    pub(super) two_inside: &'static str,
    pub(super) and_a_third: &'static str,
    pub(super) kept: &'static str,
    pub(super) lost: &'static str,
    pub(super) no_token: &'static str,
    pub(super) never: &'static str,
    pub(super) seconds: &'static str,
    pub(super) not_compared: &'static str,
    pub(super) note: &'static str,
    pub(super) load: [&'static str; 8],
    pub(super) asks_again: &'static str,
    /// By which command, and on which machine.
    pub(super) made: fn(&str, &str) -> String,
}

/// What this crate says otherwise.
pub const ENGLISH: Words = Words {
    backend: "lock",
    faults: [
        "pause",
        "failover",
        "restart",
        "clock jump",
        "partition",
        "lost answer",
        "kill",
    ],
    one_inside: "one inside",
    two_inside: "two inside",
    and_a_third: "two + a third",
    kept: "kept",
    lost: "lost",
    no_token: "no token",
    never: "never",
    seconds: "s",
    not_compared: "Not compared",
    note: "n/a",
    load: [
        "alone: acquire p50, ms",
        "p99, ms",
        "per second",
        "16 want it: acquire p50, ms",
        "p99, ms",
        "per second",
        "messages",
        "woken of 8",
    ],
    asks_again: "polls",
    made: |command, machine| {
        format!(
            "Made by `{command}` on {machine}, {}.",
            super::notes::SAME_MACHINE
        )
    },
};

/// For the translation of the document.
pub const CHINESE: Words = Words {
    backend: "锁",
    faults: [
        "暂停",
        "主从切换",
        "重启",
        "时钟跳变",
        "网络分区",
        "应答丢失",
        "杀死",
    ],
    one_inside: "一个在内",
    two_inside: "两个在内",
    and_a_third: "两个 + 第三个",
    kept: "保住",
    lost: "丢失",
    no_token: "无令牌",
    never: "永远等不到",
    seconds: "秒",
    not_compared: "没有参加比较",
    note: "不适用",
    load: [
        "独占：获取 p50，毫秒",
        "p99，毫秒",
        "每秒次数",
        "16 个争抢：获取 p50，毫秒",
        "p99，毫秒",
        "每秒次数",
        "消息数",
        "8 个等待者中被唤醒",
    ],
    asks_again: "轮询",
    made: |command, machine| {
        format!("由 `{command}` 生成；机器：{machine}，服务器和客户端都在这台机器上。")
    },
};

/// Those of the language that a file is written in, by its name.
pub fn words_for(file: &Path) -> Words {
    if file.to_string_lossy().contains(".zh") {
        CHINESE
    } else {
        ENGLISH
    }
}

impl Words {
    pub(super) fn fault(&self, fault: Fault) -> &'static str {
        let place = Fault::ALL.iter().position(|other| *other == fault);
        place.map_or("", |place| self.faults[place])
    }

    pub(super) fn fate(&self, fate: Fate) -> &'static str {
        match fate {
            Fate::Kept => self.kept,
            Fate::Lost => self.lost,
            Fate::NoToken => self.no_token,
        }
    }

    pub(super) fn inside(&self, counts: &Counts) -> &'static str {
        match counts.inside_at_once {
            _ if counts.third_let_in => self.and_a_third,
            0 | 1 => self.one_inside,
            _ => self.two_inside,
        }
    }

    pub(super) fn wait(&self, counts: &Counts) -> String {
        counts.next_after_seconds.map_or_else(
            || self.never.into(),
            |after| format!("{after:.2} {}", self.seconds),
        )
    }

    /// A cell in two parts: what happened to the lock, and what to the rows. One of them, where the question is how long the next one waits.
    pub(super) fn cell(&self, cell: &Cell) -> (String, Option<String>) {
        match &cell.outcome {
            Outcome::NotApplicable(_) => (self.note.into(), None),
            Outcome::Counted(counts) if cell.fault.is_about_waiting() => (self.wait(counts), None),
            Outcome::Counted(counts) => {
                let fates = format!(
                    "{}/{}",
                    self.fate(counts.without_fence()),
                    self.fate(counts.with_fence())
                );
                (self.inside(counts).into(), Some(fates))
            }
        }
    }
}

/// The figures of a lock in the order of the columns; a dash for what was not measured.
pub(super) fn figures(figures: &Figures, words: &Words) -> [String; 8] {
    let ms = |ms: Option<f64>| {
        ms.map_or("-".into(), |ms| {
            if ms < 10.0 {
                format!("{ms:.2}")
            } else {
                format!("{ms:.0}")
            }
        })
    };
    let rate = |rate: Option<f64>| rate.map_or("-".into(), |rate| format!("{rate:.0}"));
    let digit = |number: Option<f64>| number.map_or("-".into(), |number| format!("{number:.1}"));
    let (alone, contended) = (&figures.alone, &figures.contended);
    [
        ms(alone.acquire_ms(0.5)),
        ms(alone.acquire_ms(0.99)),
        rate(alone.per_second()),
        ms(contended.acquire_ms(0.5)),
        ms(contended.acquire_ms(0.99)),
        rate(contended.per_second()),
        digit(figures.messages),
        if figures.contestant.is_asked_again() {
            words.asks_again.into()
        } else {
            digit(figures.woken)
        },
    ]
}
