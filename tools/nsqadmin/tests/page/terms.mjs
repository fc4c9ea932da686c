// The end and the reason of a pause, and the undo of an empty. The checks replace some answers of the server: what nodes can do,
// and what a channel tells.

import { accessible, equal } from "./browser.mjs";
import { make } from "./daemons.mjs";

const button = (page, name) => page.getByRole("button", { name, exact: true });

// Makes the server say that the nodes can do this.
async function pretend(page, nodes) {
  await page.route("**/api/abilities*", (route) => route.fulfill({ json: { nodes, message: "" } }));
}

// Adds fields to the channel's object in the server's answer, and keeps the acts, which it does not let through.
async function replace(page, path, fields) {
  const acts = [];
  await page.route(`**/api/topics/${path}`, async (route) => {
    if (route.request().method() === "POST") {
      acts.push(route.request().postDataJSON());
      return route.fulfill({ json: { message: "" } });
    }
    const answer = await route.fetch();
    return route.fulfill({ response: answer, json: { ...await answer.json(), ...fields } });
  });
  return acts;
}

async function pictures(page, name, directory) {
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    await accessible(page, `${name}, ${colorScheme}`);
    await page.screenshot({ path: `${directory}/${name}-${colorScheme}.png` });
  }
  await page.emulateMedia({ colorScheme: "light" });
}

async function channel(browser, cluster, name, fields, nodes) {
  await make(cluster.nsqds, name, ["archive"], 5);
  const page = await browser.open("about:blank");
  const acts = await replace(page, `${name}/archive`, fields);
  await pretend(page, nodes);
  await page.goto(`${cluster.admin}topics/${name}/archive`);
  return [page, acts];
}

const able = { node: "n1:4151", pause_terms: true, undo: true };
const unable = { node: "n2:4151", pause_terms: false, undo: false };

export const checks = {
  async "terms: a pause with an end and a note"(browser, cluster) {
    const [page, acts] = await channel(browser, cluster, "terms.pause", {}, [able]);
    await button(page, "Pause channel").click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("It ends by itself after").selectOption("10m");
    await dialog.getByLabel("Note for others").fill("deploying");
    await pictures(page, "pause-dialog", cluster.pictures);
    await button(dialog, "Pause").click();
    await page.getByText("Pause the channel terms.pause/archive: done.").waitFor();
    equal(acts, [{ action: "pause", for: "10m", note: "deploying" }], "the request");
  },

  async "terms: an end is not offered where a node would pause for ever"(browser, cluster) {
    const [page] = await channel(browser, cluster, "terms.mixed", {}, [able, unable]);
    await button(page, "Pause channel").click();
    const dialog = page.getByRole("dialog");
    await dialog.getByText("these nodes would pause without an end: n2:4151").waitFor();
    equal(await dialog.getByLabel("It ends by itself after").isDisabled(), true, "the choice is off");
    await page.keyboard.press("Escape");
    await page.unroute("**/api/abilities*");
    await pretend(page, [unable]);
    await button(page, "Pause channel").click();
    await dialog.locator("button[type=submit]:enabled").waitFor();
    equal(await dialog.getByLabel("It ends by itself after").count(), 0, "the choice with nodes of which none can");
    equal(await dialog.getByRole("textbox").count(), 0, "the note with nodes of which none can");
  },

  async "terms: a pause says its end, its admin and its note"(browser, cluster) {
    const until = new Date();
    until.setHours(23, 59, 0, 0);
    const fields = { paused: true, pause_until_ms: until.getTime(), paused_by: "ann", pause_note: "deploying <b>" };
    const [page] = await channel(browser, cluster, "terms.shown", fields, [able]);
    await page.getByRole("heading", { name: "Channel archive paused until 23:59 by ann: deploying <b>" }).waitFor();
    await pictures(page, "paused", cluster.pictures);
  },

  async "terms: an empty with an undo, and the undo"(browser, cluster) {
    const fields = { undo_until_ms: Date.now() + 600_000, undo_message_count: 1234 };
    const [page, acts] = await channel(browser, cluster, "terms.undo", fields, [able]);
    await button(page, "Empty channel").click();
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("textbox").fill("archive");
    equal(await dialog.getByLabel("The messages can be brought back for").inputValue(), "10m", "the first choice");
    await pictures(page, "empty-dialog", cluster.pictures);
    await button(dialog, "Empty").click();
    await page.getByText("Empty the channel terms.undo/archive: done.").waitFor();
    await page.getByText("1,234 emptied messages can be brought back until").waitFor();
    await pictures(page, "undo-bar", cluster.pictures);
    await button(page, "Undo the empty").click();
    await pictures(page, "undo-dialog", cluster.pictures);
    await button(dialog, "Bring back").click();
    await page.getByText("Bring back 1,234 messages of terms.undo/archive: done.").waitFor();
    equal(acts, [{ action: "empty", undo: "10m" }, { action: "unempty" }], "the requests");
  },
};
