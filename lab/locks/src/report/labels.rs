//! The labels of the tables, in English and in Chinese.

use std::path::Path;

use super::{columns::COLUMNS, notes::SAME_MACHINE};
use crate::{
    experiment::Counts,
    fault::Fault,
    verdict::{Cell, Integrity, Outcome},
};

/// The labels of one language.
#[derive(Debug, Clone, Copy)]
pub struct Labels {
    pub(super) lock: &'static str,
    /// In the order of [`Fault::ALL`].
    faults: [&'static str; Fault::ALL.len()],
    one_inside: &'static str,
    two_inside: &'static str,
    two_and_a_third: &'static str,
    kept: &'static str,
    pub(super) lost: &'static str,
    no_token: &'static str,
    never: &'static str,
    seconds: &'static str,
    pub(super) not_compared: &'static str,
    not_applicable: &'static str,
    /// Headers of the load table.
    pub(super) load: [&'static str; COLUMNS],
    pub(super) polls: &'static str,
    /// Caption of the tables, from the command and the machine.
    pub(super) caption: fn(&str, &str) -> String,
}

/// The language of the terminal and of the page.
pub const ENGLISH: Labels = Labels {
    lock: "lock",
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
    two_and_a_third: "two + a third",
    kept: Integrity::Kept.label(),
    lost: Integrity::Lost.label(),
    no_token: Integrity::NoToken.label(),
    never: "never",
    seconds: "s",
    not_compared: "Not compared",
    not_applicable: "n/a",
    load: [
        "alone: acquire p50, ms",
        "p99, ms",
        "per second",
        "16 contend: acquire p50, ms",
        "p99, ms",
        "per second",
        "messages",
        "woken of 8",
    ],
    polls: "polls",
    caption: |command, machine| format!("Measured by `{command}` on {machine}, {SAME_MACHINE}."),
};

/// The language of the translated documents.
pub const CHINESE: Labels = Labels {
    lock: "锁",
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
    two_and_a_third: "两个 + 第三个",
    kept: "保住",
    lost: "丢失",
    no_token: "无令牌",
    never: "永远等不到",
    seconds: "秒",
    not_compared: "没有参加比较",
    not_applicable: "不适用",
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
    polls: "轮询",
    caption: |command, machine| {
        format!("由 `{command}` 测得；机器：{machine}，服务器和客户端都在这台机器上。")
    },
};

/// The labels in the language of a document, by its file name.
pub fn labels_for(file: &Path) -> Labels {
    if file.to_string_lossy().contains(".zh") {
        CHINESE
    } else {
        ENGLISH
    }
}

/// What a cell shows.
pub(super) enum CellText {
    /// One line: how long the next contender waited, or that there is no result.
    Single(String),
    /// Holders inside, and the state of both rows.
    Safety { inside: &'static str, rows: String },
}

impl Labels {
    pub(super) fn fault(&self, fault: Fault) -> &'static str {
        let index = Fault::ALL.iter().position(|other| *other == fault);
        index.map_or("", |index| self.faults[index])
    }

    pub(super) fn inside(&self, counts: &Counts) -> &'static str {
        match counts.concurrent_holders {
            _ if counts.third_acquired => self.two_and_a_third,
            0 | 1 => self.one_inside,
            _ => self.two_inside,
        }
    }

    pub(super) fn wait(&self, counts: &Counts) -> String {
        counts.next_wait_seconds.map_or_else(
            || self.never.into(),
            |seconds| format!("{seconds:.2} {}", self.seconds),
        )
    }

    pub(super) fn cell(&self, cell: &Cell) -> CellText {
        match &cell.outcome {
            Outcome::NotApplicable(_) => CellText::Single(self.not_applicable.into()),
            Outcome::Counted(counts) if cell.fault.measures_wait() => {
                CellText::Single(self.wait(counts))
            }
            Outcome::Counted(counts) => CellText::Safety {
                inside: self.inside(counts),
                rows: format!(
                    "{}/{}",
                    self.integrity(counts.without_fence()),
                    self.integrity(counts.with_fence())
                ),
            },
        }
    }

    fn integrity(&self, integrity: Integrity) -> &'static str {
        match integrity {
            Integrity::Kept => self.kept,
            Integrity::Lost => self.lost,
            Integrity::NoToken => self.no_token,
        }
    }
}
