"""The dashboard's page: plain HTML, a style sheet and a little script. Everything that comes from
the daemon is put in as text, never as HTML."""

from __future__ import annotations

HTML = b"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>sandboxd</title>
<link rel="stylesheet" href="/page.css">
<script src="/page.js" defer></script>
</head>
<body>
<header><h1>sandboxd</h1><p id="status" role="status">connecting</p></header>
<main>
<section><h2>Waiting for a decision</h2><div id="approvals"></div></section>
<section><h2>Sessions</h2><table id="sessions"></table></section>
<section><h2>Running</h2><table id="executions"></table></section>
<section><h2>Denials</h2><table id="denials"></table></section>
<section><h2>Trail</h2>
<label>Filter <input id="filter" type="search" placeholder="approval, execution.ended, se-"></label>
<table id="records"></table></section>
</main>
</body>
</html>
"""

CSS = b"""
:root { color-scheme: light dark; --line: #8884; --soft: #8882; --act: #2563eb; --no: #b91c1c; }
* { box-sizing: border-box; }
body { margin: 0; font: 15px/1.45 system-ui, sans-serif; }
header { display: flex; align-items: baseline; gap: 1rem; padding: .8rem 1.5rem;
  border-bottom: 1px solid var(--line); }
h1 { font-size: 1.1rem; margin: 0; } h2 { font-size: 1rem; margin: 1.6rem 0 .5rem; }
main { max-width: 75rem; margin: 0 auto; padding: 0 1.5rem 3rem; }
table { width: 100%; border-collapse: collapse; }
td, th { text-align: left; vertical-align: top; padding: .3rem 1rem .3rem 0;
  border-bottom: 1px solid var(--line); white-space: nowrap; max-width: 24rem; overflow: hidden;
  text-overflow: ellipsis; }
th { font-weight: 600; }
td.wide { white-space: normal; overflow-wrap: anywhere; width: 100%; max-width: none; }
caption { text-align: left; }
.approval { border: 1px solid var(--line); border-radius: .5rem; padding: .8rem 1rem;
  margin-bottom: .8rem; }
.approval p { margin: .2rem 0; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: var(--soft); padding: .5rem;
  border-radius: .3rem; margin: .5rem 0; }
button { font: inherit; margin: .3rem .4rem 0 0; padding: .3rem .8rem; border-radius: .3rem;
  border: 1px solid var(--act); background: transparent; color: inherit; cursor: pointer; }
button.no { border-color: var(--no); }
button:disabled { opacity: .45; cursor: default; }
input { font: inherit; padding: .25rem .5rem; margin: 0 0 .5rem .3rem; min-width: 20rem; }
.warning { color: var(--no); } .quiet { opacity: .65; } code { font-size: .85em; }
"""

JS = b"""'use strict';
const $ = (id) => document.getElementById(id);
const shown = new Map();   // approvals on the page, by id: a prompt is never replaced
let records = [];

// Characters that show nothing, or that turn the text around them, are shown by their number.
const HIDDEN = new RegExp('(?! )[\\\\p{C}\\\\p{Z}\\\\u034f\\\\u115f\\\\u1160\\\\u17b4\\\\u17b5' +
  '\\\\u180b-\\\\u180f\\\\u2800\\\\u3164\\\\ufe00-\\\\ufe0f\\\\uffa0' +
  '\\\\u{e0100}-\\\\u{e01ef}]', 'gu');
const visible = (value) => value.replace(HIDDEN,
  (one) => '\\\\u{' + one.codePointAt(0).toString(16) + '}');

function text(tag, value, name) {
  const element = document.createElement(tag);
  element.textContent = visible(value);
  if (name) element.className = name;
  return element;
}

// A cell is a text, or a short text with all of it as a hint. `wide`: the column that may wrap.
const short = (id) => (id.length > 16 ? {short: id.slice(0, 11) + '\\u2026', whole: id} : id);
const today = () => new Date().toISOString().slice(0, 10);
const clock = (at) => ({short: at.startsWith(today()) ? at.slice(11, 19) : at.slice(0, 16),
  whole: at});

function cellOf(cell, name) {
  if (typeof cell === 'string') return text('td', cell, name);
  const element = text('td', cell.short, cell.warn ? 'warning ' + name : name);
  if (cell.whole) element.title = visible(cell.whole);
  if (cell.depth) element.style.paddingLeft = 1.2 * cell.depth + 'rem';
  return element;
}

function fill(id, head, rows, wide) {
  const table = $(id);
  table.replaceChildren();
  if (!rows.length) { table.append(text('caption', 'none', 'quiet')); return; }
  const first = document.createElement('tr');
  head.forEach((word) => first.append(text('th', word)));
  table.append(first);
  rows.forEach((cells) => {
    const row = document.createElement('tr');
    cells.forEach((cell, at) => row.append(cellOf(cell, at === wide ? 'wide' : '')));
    table.append(row);
  });
}

async function post(path, body) {
  const answer = await fetch(path, {method: 'POST', credentials: 'same-origin',
    headers: {'Content-Type': 'application/json'}, body: JSON.stringify(body)});
  const value = await answer.json();
  if (!answer.ok) throw new Error(value.error);
  return value;
}

function approvalCard(one) {
  const card = document.createElement('article');
  card.className = 'approval';
  card.dataset.approval = one.approval;
  const title = one.title ? ' (' + one.title + ')' : '';
  card.append(text('p', one.client.name + title + ' asks:', 'quiet'));
  card.append(text('p', one.question));
  if (one.display) card.append(text('pre', one.display));
  if (one.cwd) card.append(text('p', 'in ' + one.cwd, 'quiet'));
  if (one.truncated) card.append(text('p', 'the command is longer than can be shown', 'warning'));
  one.warnings.forEach((word) => card.append(text('p', word, 'warning')));
  one.because.forEach((denial) => card.append(text('p', denial.message, 'quiet')));
  const outcome = text('p', '', 'warning');
  const buttons = one.choices.map((choice) => {
    const button = text('button', choice.label, choice.allows ? 'yes' : 'no');
    button.dataset.choice = choice.choice;
    button.disabled = true;
    button.addEventListener('click', async (event) => {
      if (!event.isTrusted) return;
      buttons.forEach((other) => { other.disabled = true; });
      try {
        const decided = await post('/decide',
          {approval: one.approval, digest: one.digest, choice: choice.choice});
        outcome.textContent = decided.state;
      } catch (error) { outcome.textContent = error.message; }
      refresh();
    });
    card.append(button);
    return button;
  });
  card.append(outcome);
  // A click that was meant for something else must not decide.
  setTimeout(() => buttons.forEach((button) => { button.disabled = false; }), 400);
  return card;
}

function showApprovals(approvals) {
  const live = new Set(approvals.map((one) => one.approval));
  for (const [id, card] of shown) if (!live.has(id)) { card.remove(); shown.delete(id); }
  approvals.forEach((one) => {
    if (shown.has(one.approval)) return;
    const card = approvalCard(one);
    shown.set(one.approval, card);
    $('approvals').append(card);
  });
  $('approvals').dataset.empty = String(approvals.length === 0);
}

function budgetCell(one) {
  const used = (name) => one.usage[name.replace(/^max_/, '')];
  const near = (name, limit) => used(name) !== undefined && used(name) >= 0.8 * limit;
  const entries = Object.entries(one.budget);
  const words = entries.map(([name, limit]) => name.replace(/^max_/, '').replaceAll('_', ' ') +
    (used(name) === undefined ? ' ' : ' ' + Math.round(used(name) * 100) / 100 + ' of ') + limit);
  return {short: words.join(', '), warn: entries.some((entry) => near(...entry))};
}

function sessionRows(sessions) {
  const known = new Set(sessions.map((one) => one.session));
  const rows = [];
  const below = (one, depth) => {
    rows.push([{short: (depth ? '\\u2514 ' : '') + (one.title || one.name || one.session),
      whole: one.session, depth}, one.plan ? 'plan' : one.mode, one.state, String(one.executions),
      String(one.approvals), one.usage.cost_usd.toFixed(2),
      String(one.usage.tokens_in + one.usage.tokens_out), budgetCell(one)]);
    sessions.filter((other) => other.parent === one.session)
      .forEach((other) => below(other, depth + 1));
  };
  sessions.filter((one) => !known.has(one.parent)).forEach((one) => below(one, 0));
  return rows;
}

function showRecords() {
  const wanted = $('filter').value.trim().toLowerCase();
  const found = records.filter((one) => !wanted || JSON.stringify(
    [one.seq, one.at, one.type, one.execution_id, one.session, one.data]
  ).toLowerCase().includes(wanted));
  const rows = found.map((one) => [String(one.seq), clock(one.at), one.type,
    short(one.execution_id || one.session || ''), dataWords(one.data)]);
  fill('records', ['#', 'at', 'type', 'of', 'data'], rows, 4);
}

function dataWords(data) {
  const said = Object.entries(data).filter(([name, value]) => name !== 'digest' &&
    value !== null && !(Array.isArray(value) && !value.length));
  return said.map(([name, value]) => name + '=' +
    (typeof value === 'string' ? value : JSON.stringify(value))).join('  ');
}

function show(state) {
  showApprovals(state.approvals);
  fill('sessions', ['session', 'mode', 'state', 'runs', 'waits', 'usd', 'tokens', 'budget'],
    sessionRows(state.sessions), 7);
  fill('executions', ['execution', 'command', 'backend'],
    state.executions.map((one) => [short(one.execution_id), one.argv.join(' '),
      one.backend || 'waits']), 1);
  records = state.records;
  fill('denials', ['at', 'kind', 'target', 'execution'], records.filter(
    (one) => one.type === 'execution.ended' && one.data.denials).flatMap(
    (one) => one.data.denials.map((denial) => [clock(one.at), denial.kind, denial.target || '',
      short(one.execution_id || '')])).slice(0, 50), 2);
  showRecords();
}

async function refresh() {
  try {
    const answer = await fetch('/state', {credentials: 'same-origin'});
    const state = await answer.json();
    if (!answer.ok) throw new Error(state.error);
    show(state);
    $('status').textContent = 'connected';
  } catch (error) { $('status').textContent = error.message; }
}

async function begin() {
  const token = location.hash.slice(1);
  if (token) {
    history.replaceState(null, '', '/');
    try { await post('/login', {token}); }
    catch (error) { $('status').textContent = error.message; }
  }
  await refresh();
  setInterval(refresh, 1000);
}

$('filter').addEventListener('input', showRecords);
begin();
"""
