//! The transcript on the screen: from its newest line upwards, or from where the person has scrolled to.
//!
//! Only what is seen is wrapped. A place is the id of an item; texts that are still growing have the places after the last, and after
//! those the prompts that wait for their turn.

pub(crate) mod block;
mod cache;
mod together;
pub(crate) mod tool;

use std::collections::{BTreeSet, HashMap};

use ensemble_protocol::transcript::view::{Growing, Item, Shown, View};
use ensemble_protocol::transcript::words::TurnState;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::text::Line;

use block::{Block, Setting};
use cache::Cache;

/// The items of a turn that are looked through for running tools.
const MOST_LOOKED_AT: usize = 500;

/// Where the person is in the transcript, and the lines that were wrapped for it.
#[derive(Default)]
pub(crate) struct Transcript {
    pub(crate) cache: Cache,
    growing: HashMap<u32, (u64, u16, Block)>,
    /// The lowest line that is shown. `None`: the newest one.
    lowest: Option<Spot>,
    /// The id after the newest item when the person began to scroll.
    left_at: u64,
    height: u16,
    is_at_top: bool,
}

/// A line: the place of its block and its number in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Spot {
    place: u64,
    row: usize,
}

impl Transcript {
    /// Draws into the area. What is shorter stands at its end.
    pub(crate) fn draw(&mut self, buffer: &mut Buffer, area: Rect, view: &View, setting: &Setting<'_>) {
        self.height = area.height;
        self.cache.begin();
        let wanted = usize::from(area.height);
        let lowest = self.lowest;
        let mut walk = self.walk(view, setting);
        let Some(newest) = walk.newest() else { return };
        let from = lowest.map_or(newest, |lowest| walk.clamp(lowest, newest));
        let (mut lines, mut top) = walk.up(from, wanted);
        let mut kept = lowest.map(|_| from);
        if lowest.is_some() && lines.len() < wanted {
            // Too far up. An empty line between two items cannot be the lowest one, so that this may go one too far.
            kept = walk.move_down(from, wanted - lines.len());
            (lines, top) = walk.up(kept.unwrap_or(newest), wanted);
            if let Some(spot) = kept.filter(|_| !top) {
                kept = Some(walk.move_up(spot, 1));
                (lines, top) = walk.up(kept.unwrap_or(newest), wanted);
            }
        }
        self.is_at_top = top && lowest.is_some();
        self.lowest = kept;
        let shown = u16::try_from(lines.len()).unwrap_or(area.height);
        let bottom = if top && kept.is_some() { area.top().saturating_add(shown) } else { area.bottom() };
        for (line, row) in lines.iter().zip((area.top()..bottom).rev()) {
            buffer.set_line(area.left(), row, line, area.width);
        }
    }

    /// Scrolls by lines; up is negative.
    pub(crate) fn scroll(&mut self, by: isize, view: &View, setting: &Setting<'_>) {
        let before = self.lowest;
        let mut walk = self.walk(view, setting);
        let Some(newest) = walk.newest() else { return };
        let from = before.map_or(newest, |lowest| walk.clamp(lowest, newest));
        let after = if by < 0 {
            Some(walk.move_up(from, by.unsigned_abs()))
        } else {
            before.and_then(|_| walk.move_down(from, by.unsigned_abs()))
        };
        if before.is_none() && after.is_some() {
            self.left_at = view.items().next_back().map_or(0, |item| item.id + 1);
        }
        self.lowest = after;
    }

    /// Scrolls by screens; up is negative.
    pub(crate) fn page(&mut self, by: isize, view: &View, setting: &Setting<'_>) {
        let lines = isize::try_from(self.height.saturating_sub(2).max(1)).unwrap_or(1);
        self.scroll(by * lines, view, setting);
    }

    pub(crate) fn follow(&mut self) {
        self.lowest = None;
    }

    /// How many items have come since the person began to scroll. `None`: the newest are shown.
    pub(crate) fn below(&self, view: &View) -> Option<u64> {
        self.lowest?;
        let next = view.items().next_back().map_or(0, |item| item.id + 1);
        Some(next.saturating_sub(self.left_at))
    }

    pub(crate) fn is_at_top(&self) -> bool {
        self.is_at_top
    }

    fn walk<'a>(&'a mut self, view: &'a View, setting: &'a Setting<'a>) -> Walk<'a> {
        let first = view.items().next().map_or(0, |item| item.id);
        let next = view.items().next_back().map_or(0, |item| item.id + 1);
        let mut growing: HashMap<u32, &Growing> = view.growing().collect();
        let tails = if growing.is_empty() { HashMap::new() } else { tails(view, &mut growing) };
        self.growing.retain(|part, _| growing.contains_key(part));
        let mut parts: Vec<_> = growing.into_iter().collect();
        parts.sort_by_key(|(part, _)| *part);
        let mut below: Vec<Block> =
            parts.into_iter().map(|(part, text)| self.growing_block(part, text, setting)).collect();
        if view.lacks_key {
            below.push(block::lacks_key(setting));
        }
        if let Some(list) = view.withheld() {
            below.push(block::withheld(list, setting));
        }
        below.extend(view.waiting().map(|item| self.cache.block(item, view, setting)));
        let waiting = view.waiting().map(|item| item.id).collect();
        Walk { view, setting, cache: &mut self.cache, first, next, tails, below, waiting }
    }

    fn growing_block(&mut self, part: u32, text: &Growing, setting: &Setting<'_>) -> Block {
        if let Some((until, width, block)) = self.growing.get(&part)
            && (*until, *width) == (text.until, setting.width)
        {
            return block.clone();
        }
        let block = block::growing(text, setting);
        self.growing.insert(part, (text.until, setting.width, block.clone()));
        block
    }
}

/// Takes out of the growing texts those that running tools write, by the id of the call's item.
fn tails<'a>(view: &'a View, growing: &mut HashMap<u32, &'a Growing>) -> HashMap<u64, &'a str> {
    let is_start = |item: &&Item| matches!(&item.shown, Shown::Turn(turn) if turn.state == TurnState::Started);
    let items = view.items().rev().take(MOST_LOOKED_AT).take_while(|item| !is_start(item));
    let calls = items.filter_map(|item| match &item.shown {
        Shown::Tool(call) => Some((item.id, call.part?)),
        _ => None,
    });
    calls.filter_map(|(id, part)| Some((id, growing.remove(&part)?.text.as_str()))).collect()
}

/// Goes from line to line of the transcript as it is now.
struct Walk<'a> {
    view: &'a View,
    setting: &'a Setting<'a>,
    cache: &'a mut Cache,
    first: u64,
    /// The place after the last item.
    next: u64,
    tails: HashMap<u64, &'a str>,
    /// What has the places after the last item.
    below: Vec<Block>,
    /// The items that are among those.
    waiting: BTreeSet<u64>,
}

impl Walk<'_> {
    fn block(&mut self, place: u64) -> Block {
        if self.waiting.contains(&place) {
            return Block::default();
        }
        if let Some(item) = self.view.item(place) {
            let mut block = self.cache.block(item, self.view, self.setting);
            if let Some(tail) = self.tails.get(&place) {
                block.lines = block.lines.iter().cloned().chain(tool::live_lines(tail, self.setting)).collect();
            }
            return block;
        }
        let number = usize::try_from(place.saturating_sub(self.next)).unwrap_or(usize::MAX);
        self.below.get(number).cloned().unwrap_or_default()
    }

    fn end(&self) -> u64 {
        self.next + u64::try_from(self.below.len()).unwrap_or(0)
    }

    /// The nearest place before this one that has lines.
    fn before(&mut self, place: u64) -> Option<(u64, Block)> {
        (self.first..place).rev().map(|place| (place, self.block(place))).find(|(_, block)| !block.lines.is_empty())
    }

    fn after(&mut self, place: u64) -> Option<(u64, Block)> {
        let end = self.end();
        (place + 1..end).map(|place| (place, self.block(place))).find(|(_, block)| !block.lines.is_empty())
    }

    fn newest(&mut self) -> Option<Spot> {
        let end = self.end();
        self.before(end).map(|(place, block)| Spot { place, row: block.lines.len() - 1 })
    }

    /// A line that is there, next to this one.
    fn clamp(&mut self, line: Spot, newest: Spot) -> Spot {
        if line.place >= self.end() {
            return newest;
        }
        let place = line.place.max(self.first);
        match self.block(place).lines.len() {
            0 => self.after(place).map_or(newest, |(place, _)| Spot { place, row: 0 }),
            lines => Spot { place, row: line.row.min(lines - 1) },
        }
    }

    /// At most `most` lines from this one upwards, and whether they include the first line of all.
    fn up(&mut self, from: Spot, most: usize) -> (Vec<Line<'static>>, bool) {
        let mut lines = Vec::with_capacity(most);
        let (mut place, mut block) = (from.place, self.block(from.place));
        let mut row = from.row;
        loop {
            let shown = block.lines.get(..=row).unwrap_or(&block.lines);
            lines.extend(shown.iter().rev().take(most - lines.len()).cloned());
            if lines.len() >= most {
                return (lines, false);
            }
            let Some((above, upper)) = self.before(place) else { return (lines, true) };
            if has_gap(&upper, &block) {
                lines.push(Line::default());
            }
            row = upper.lines.len() - 1;
            (place, block) = (above, upper);
        }
    }

    fn move_up(&mut self, from: Spot, by: usize) -> Spot {
        let (mut line, mut left) = (from, by);
        let mut block = self.block(line.place);
        while left > line.row {
            left -= line.row + 1;
            let Some((place, upper)) = self.before(line.place) else { return Spot { row: 0, ..line } };
            if has_gap(&upper, &block) {
                left = left.saturating_sub(1);
            }
            line = Spot { place, row: upper.lines.len() - 1 };
            block = upper;
        }
        Spot { row: line.row - left, ..line }
    }

    /// `None`: there is nothing below any more.
    fn move_down(&mut self, from: Spot, by: usize) -> Option<Spot> {
        let (mut line, mut left) = (from, by);
        let mut block = self.block(line.place);
        loop {
            let below = block.lines.len().saturating_sub(line.row + 1);
            if left <= below {
                let line = Spot { row: line.row + left, ..line };
                let is_newest = line.row + 1 == block.lines.len() && self.after(line.place).is_none();
                return (!is_newest).then_some(line);
            }
            left -= below + 1;
            let (place, lower) = self.after(line.place)?;
            if has_gap(&block, &lower) {
                left = left.saturating_sub(1);
            }
            line = Spot { place, row: 0 };
            block = lower;
        }
    }
}

fn has_gap(upper: &Block, lower: &Block) -> bool {
    !(lower.joins || (upper.is_tight && lower.is_tight))
}
