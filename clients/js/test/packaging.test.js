// What `npm pack` makes, and the types where `tsc` is installed.

import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

const folder = fileURLToPath(new URL('..', import.meta.url));
const read = (...path) => readFileSync(join(folder, ...path), 'utf8');

/** Why a test is skipped, if the program is not installed. */
function lacks(program) {
  if (spawnSync(program, ['--version']).status === 0) return false;
  console.log(`\nSKIPPED: the client for JavaScript: ${program} is not installed`);
  return `${program} is not installed`;
}

/** Uses a copy of the client in a folder that is removed afterwards. */
function inACopy(use) {
  const temporary = mkdtempSync(join(tmpdir(), 'stockade-client-'));
  try {
    const tree = join(temporary, 'tree');
    cpSync(folder, tree, { recursive: true });
    use({ temporary, tree });
  } finally {
    rmSync(temporary, { recursive: true });
  }
}

const filesOf = (path) => readdirSync(path, { recursive: true }).map(String).sort();

test('a package is whole, works, and leaves nothing behind', { skip: lacks('npm') }, () => {
  inACopy(({ temporary, tree }) => {
    const before = filesOf(tree);
    const pack = ['pack', '--json', '--offline', '--pack-destination', temporary];
    const [{ filename, files }] = JSON.parse(execFileSync('npm', pack, { cwd: tree }));
    assert.deepEqual(filesOf(tree), before, 'the tree is as it was');
    const sources = readdirSync(join(folder, 'src')).map((name) => `src/${name}`);
    const expected = ['LICENSE', 'README.md', 'package.json', ...sources];
    assert.deepEqual(files.map(({ path }) => path).sort(), expected.sort());

    const shop = join(temporary, 'shop');
    mkdirSync(shop);
    const install = ['install', '--offline', '--no-audit', '--no-fund', join(temporary, filename)];
    execFileSync('npm', install, { cwd: shop, stdio: 'pipe' });
    const script = "import { newOrder } from 'stockade-client'; console.log(newOrder('vase').item)";
    const node = ['--input-type=module', '--eval', script];
    assert.equal(execFileSync('node', node, { cwd: shop }).toString(), 'vase\n');
  });
});

test('the licence is that of the project', () => {
  assert.equal(read('LICENSE'), read('..', '..', 'LICENSE'));
  assert.equal(JSON.parse(read('package.json')).license, 'Apache-2.0');
});

/** What a shop writes, and below it what the types must refuse. */
const SHOP = `
import {
  Client, NoLongerHeld, OrderBatcher, OutcomeUnknown, Refused, Webhook, hasUnits, mintBuyer, newCart, newOrder,
} from 'stockade-client';
import type { Cart, Item, ListedItem, Order, Placed } from 'stockade-client';

const client = new Client(['http://127.0.0.1:8080'], { retry: { deadline: 3000 } });
const token: string = mintBuyer('secret', 'ann', { issuer: 'shop', audience: 'stockade' });
const buyer = client.buyer(token);
const admin = client.admin('token');

export async function sell(): Promise<Order | undefined> {
  try {
    const placed: Placed = await buyer.place(newOrder('vase', 1));
    return hasUnits(placed.order) ? placed.order : undefined;
  } catch (error) {
    if (error instanceof Refused) console.log(error.problem.code, error.settlesKey);
    else if (error instanceof NoLongerHeld) console.log(error.state);
    else if (error instanceof OutcomeUnknown) console.log(error.mayHaveRun);
    else throw error;
  }
  return undefined;
}

export async function manage(): Promise<Item[]> {
  for await (const cart of buyer.carts()) console.log((cart as Cart).lines.length);
  for await (const row of admin.items()) console.log((row as ListedItem).segment_count);
  const item = await admin.addStock('vase', 5, 'delivery-1');
  await admin.extendCart('c-1', { session: 'cs_1' });
  const { delivered } = await admin.testWebhook('w-1');
  const event = new Webhook('whsec_AAAA').verify({ 'webhook-id': 'm' }, new Uint8Array());
  console.log(delivered, event.cart, item.pending, await new OrderBatcher(admin, 'vase').order('ann', 1, 'k'));
  await admin.placeCart('ann', newCart([{ item: 'vase' }], { amount: 'unchecked' }));
  return [
    await admin.setStock('vase', 7, item.version ?? 0),
    await admin.patchItem('vase', { closes_at: null }, { version: 3 }),
  ];
}
`;
const WRONG = [
  "newOrder('vase', '1');",
  "newCart('vase');",
  "newOrder('vase', 1, { amount: 'unchecked' });",
  "client.buyer(17);",
  "buyer.extendHold('o-1', {});",
  "admin.setState('vase', 'archived');",
  "admin.setStock('vase', 7);",
  "admin.addStock('vase', 7);",
  "mintBuyer('secret', 'ann', { audience: ['shop'] });",
];

test('the types fit what a shop writes', { skip: lacks('tsc') }, () => {
  inACopy(({ temporary, tree }) => {
    const modules = join(temporary, 'node_modules');
    mkdirSync(modules);
    symlinkSync(tree, join(modules, 'stockade-client'));
    const wrong = WRONG.map((line) => `// @ts-expect-error\n${line}`).join('\n');
    writeFileSync(join(temporary, 'package.json'), '{"type":"module"}');
    writeFileSync(join(temporary, 'shop.ts'), `${SHOP}\n${wrong}\n`);
    const options = ['--noEmit', '--strict', '--target', 'es2022', '--lib', 'es2022,dom,dom.iterable'];
    const modern = ['--module', 'node16', '--moduleResolution', 'node16'];
    const checked = spawnSync('tsc', [...options, ...modern, 'shop.ts'], { cwd: temporary });
    assert.equal(checked.status, 0, checked.stdout.toString());
  });
});
