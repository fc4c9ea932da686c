// The tests of nsqadmin's page, in Chromium, with a cluster that tests/page.rs has started.
//
// The variable PAGE_TEST has the addresses as JSON:
//   admin      nsqadmin's URL, for everybody an admin, below a base path
//   acl        nsqadmin's URL, with alice as the only admin
//   far        the same as acl, for proxies that are not on this machine
//   direct     nsqadmin's URL, with nsqd addresses instead of nsqlookupd's
//   many       {admin, switch}: nsqadmin's URL, with 10,000 topics, whose nsqds answer after a request to switch?to=idle or ?to=busy
//   graphite   nsqadmin's URL, with a server that answers as graphite does
//   huge       nsqadmin's URL, with an nsqd whose figures are as large as possible
//   mixed      nsqadmin's URL, with an nsqd that has peeks, one that forbids them, and one that has none
//   placed     {http, tcp} of the first of these, which is in the zone eu-1 of the region eu
//   unplaced   {http, tcp} of the second of these, which has no place
//   past       nsqadmin's URL, with a saved history of seven days
//   tight      nsqadmin's URL, with the same history, and room for one day of it
//   full       nsqadmin's URL, without room for the past of any topic
//   lookupd    the HTTP address of nsqlookupd
//   nsqds      {http, tcp, pid} of three nsqds. The checks kill the last one
//   night      {admin, hasty, nsqds, lookupds} of a cluster for faults: three nsqds, and two nsqlookupds as {http, tcp}. `hasty` is an
//              nsqadmin that waits for answers for a second only. `disk` is the directory of the last nsqd's small file system, or null
//   pictures   the directory for screenshots: those of failures, and with PAGE_PICTURES those of all pages
// PAGE_MEASURE=1 holds the goals for times, on a machine that does nothing else.
// PAGE_CHECK=part runs only the checks whose names contain `part`. Several parts are separated by |.

import { Browser } from "./browser.mjs";
import { checks as access } from "./access.mjs";
import { checks as actions } from "./actions.mjs";
import { atTheEnd, checks as failures, ofNight } from "./failures.mjs";
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
import { checks as requests } from "./requests.mjs";
import { checks as terms } from "./terms.mjs";
import { checks as use } from "./use.mjs";

const cluster = JSON.parse(process.env.PAGE_TEST);
const wanted = process.env.PAGE_CHECK ?? "";
const isWanted = (name) => wanted.split("|").some((part) => name.includes(part));
// The checks of a lane run one after the other, and the lanes at the same time, because most checks wait. The checks of the first four lanes
// use different topics of one cluster. The fifth lane begins with the cluster for faults. The first page of an incident waits for nodes that
// are old enough, so it comes behind them. The last lane has the large cluster.
const lanes = [
  { ...modules, ...render },
  { ...past, ...use, ...layout, ...access, ...huge },
  { ...messages, ...actions, ...failures },
  { ...orders, ...terms, ...requests },
  { ...minutes, ...ofNight, ...incident },
  many,
];
if (wanted.startsWith("pictures")) lanes.push(pictures);
const browser = await Browser.start();
let [passed, failed] = [0, 0];
// The usual rate of a producer takes a minute, so this one starts before the other checks.
if (Object.keys(minutes).some(isWanted)) await begin(cluster);
await Promise.all(lanes.map(run));
await run(atTheEnd);
await browser.stop();
console.log(`${passed} passed, ${failed} failed`);
// Consumers are still connected, so the process would not end by itself.
process.exit(failed === 0 && passed > 0 ? 0 : 1);

async function run(checks) {
  const own = browser.lane();
  for (const [name, check] of Object.entries(checks)) {
    if (!isWanted(name)) continue;
    const begun = Date.now();
    try {
      await check(own, cluster);
      passed += 1;
      console.log(`ok      ${name} (${Date.now() - begun} ms)`);
    } catch (error) {
      failed += 1;
      console.error(`FAILED  ${name}\n${error.stack ?? error}`);
      await own.picture(`${cluster.pictures}/failed-${failed}.png`);
    } finally {
      await own.closePages();
    }
  }
}
