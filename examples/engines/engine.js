// An engine in plain JavaScript: jobs are pushed to it over Socket.IO, and it says how they end.
//
//   npm install
//   DETENT_URL=http://127.0.0.1:8080 node engine.js
//
// A connection that breaks is made again by socket.io-client; `register` then presents the jobs in hand.

const { io } = require("socket.io-client");
const { randomUUID } = require("node:crypto");

const engine = { engineId: process.env.ENGINE_ID || "js-1", bootId: randomUUID(), capacity: 4 };
const jobs = new Map(); // what is in hand, by id
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

const handlers = {
  async BUILD_SCENE({ payload, say }) {
    if (payload.asset?.endsWith(".broken")) throw Object.assign(new Error(payload.asset), { code: "BAD_ASSET" });
    await say("job_log", { lines: [`building ${payload.scene}`] });
    await say("job_progress", { progress: 50 });
    await sleep(payload.ms ?? 10);
    return { scene: payload.scene, by: engine.engineId };
  },
};

const auth = process.env.DETENT_KEY ? { key: process.env.DETENT_KEY } : {};
const socket = io(`${process.env.DETENT_URL || "http://127.0.0.1:8080"}/engine`, { transports: ["websocket"], auth });
const ask = (event, told) => socket.timeout(10_000).emitWithAck(event, told);

async function work(job) {
  const known = { jobId: job.jobId, lease: job.lease };
  const say = async (event, told = {}) => {
    const reply = await ask(event, { ...known, ...told });
    if (!reply.ok) throw Object.assign(new Error(reply.error.message), { refused: reply.error.code });
    return reply;
  };
  try {
    await say("job_ack");
    const result = await handlers[job.jobType]({ ...job, say });
    await say("job_complete", { result });
  } catch (error) {
    if (error.refused) return console.log(`job ${job.jobId}: ${error.refused}`); // it is not ours any more
    await say("job_failed", { error: { code: error.code || "HANDLER_ERROR", message: error.message } }).catch(console.log);
  } finally {
    jobs.delete(job.jobId);
  }
}

socket.on("connect", async () => {
  const resume = [...jobs.values()].map(({ jobId, lease }) => ({ jobId, lease }));
  const reply = await ask("register", { ...engine, jobTypes: Object.keys(handlers), resume });
  console.log(reply.ok ? "registered" : `refused: ${reply.error.code}`);
});
socket.on("job", (job) => jobs.has(job.jobId) || (jobs.set(job.jobId, job), work(job)));
setInterval(() => socket.connected && ask("heartbeat", { jobs: [...jobs.keys()] }).catch(() => {}), 5_000);
process.on("SIGTERM", async () => {
  await ask("drain", {}).catch(() => {});
  while (jobs.size) await sleep(20);
  process.exit(0);
});
