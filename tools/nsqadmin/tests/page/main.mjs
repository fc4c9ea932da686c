// The tests of nsqadmin's page, in Chromium, with a cluster that tests/page.rs has started.
//
// The variable PAGE_TEST has the addresses as JSON:
//   admin      nsqadmin's URL, for everybody an admin, below a base path
//   acl        nsqadmin's URL, with alice as the only admin
//   far        the same as acl, for proxies that are not on this machine
//   direct     nsqadmin's URL, with nsqd addresses instead of nsqlookupd's
//   many       nsqadmin's URL, with 10,000 topics
//   graphite   nsqadmin's URL, with a server that answers as graphite does
//   huge       nsqadmin's URL, with an nsqd whose figures are as large as possible
//   mixed      nsqadmin's URL, with an nsqd that has peeks, one that forbids them, and one that has none
//   past       nsqadmin's URL, with a saved history of seven days
//   lookupd    the HTTP address of nsqlookupd
//   nsqds      {http, tcp, pid} of three nsqds. The checks kill the last one
//   night      {admin, nsqds, lookupds} of a cluster for faults: three nsqds, and two nsqlookupds as {http, tcp}. `disk` is the
//              directory of the last nsqd's small file system, or null
//   pictures   the directory for screenshots
// PAGE_CHECK=part runs only the checks whose names contain `part`. Several parts are separated by |.

import { Browser } from "./browser.mjs";
import { checks as access } from "./access.mjs";
import { checks as actions } from "./actions.mjs";
import { checks as failures } from "./failures.mjs";
import { checks as huge } from "./huge.mjs";
import { checks as incident } from "./incident.mjs";
import { checks as layout } from "./layout.mjs";
import { checks as many } from "./many.mjs";
import { checks as orders } from "./orders.mjs";
import { begin, checks as minutes } from "./minutes.mjs";
import { checks as messages } from "./messages.mjs";
import { checks as modules } from "./modules.mjs";
import { checks as past } from "./past.mjs";
import { checks as pictures } from "./pictures.mjs";
import { checks as render } from "./render.mjs";
import { checks as terms } from "./terms.mjs";
import { checks as use } from "./use.mjs";

const cluster = JSON.parse(process.env.PAGE_TEST);
const wanted = process.env.PAGE_CHECK ?? "";
const isWanted = (name) => wanted.split("|").some((part) => name.includes(part));
const all = { ...modules, ...render, ...huge, ...past, ...use, ...messages, ...incident, ...layout, ...actions, ...orders, ...terms, ...access, ...many, ...minutes, ...failures, ...(wanted.startsWith("pictures") && pictures) };
const browser = await Browser.start();
let [passed, failed] = [0, 0];
// The usual rate of a producer takes a minute, so this one starts before the other checks.
if (Object.keys(minutes).some(isWanted)) await begin(cluster);
for (const [name, check] of Object.entries(all)) {
  if (!isWanted(name)) continue;
  const begun = Date.now();
  try {
    await check(browser, cluster);
    passed += 1;
    console.log(`ok      ${name} (${Date.now() - begun} ms)`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED  ${name}\n${error.stack ?? error}`);
    await browser.picture(`${cluster.pictures}/failed-${failed}.png`);
  } finally {
    await browser.closePages();
  }
}
await browser.stop();
console.log(`${passed} passed, ${failed} failed`);
// Consumers are still connected, so the process would not end by itself.
process.exit(failed === 0 && passed > 0 ? 0 : 1);
