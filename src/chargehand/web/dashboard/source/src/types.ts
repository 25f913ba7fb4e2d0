// What the server says, as far as it is shown here.

export interface Progress {
  done: number;
  total: number | null;
  stage: string | null;
  detail: string | null;
}

export interface Worker {
  component: string;
  node: string;
  crew: string;
  index: number | null;
  status: string;
  flags: string[];
  reason: string | null;
  text: string | null;
  pid: number | null;
  current_job: string | null;
  batch_jobs: string[];
  job_since_ms: number | null;
  progress: Progress | null;
  memory: number | null;
  jobs: number;
  restart_count: number;
  restart_at_ms: number | null;
  started_ms: number | null;
  budget: { rapid_left: number; lifetime_left: number } | null;
  exit_code: number | null;
  signal: number | null;
}

export interface Queue {
  name: string | null;
  queued: number;
  future: number;
  limited: number;
  running: number;
  done: number;
  failed: number;
  cancelled: number;
  rate: number | null;
  mean_duration_s: number | null;
  eta_s: number | null;
  oldest_wait_s: number | null;
  last_done_ms: number | null;
}

export interface WorkerMoment {
  at_ms: number;
  kind: "status" | "job";
  what: string;
  text: string | null;
  pid: number | null;
  job: string | null;
  duration_ms: number | null;
}

export interface WorkerHistory {
  component: string;
  node: string | null;
  at_ms: number;
  moments: WorkerMoment[];
  memory_at_ms: number[];
  memory: number[];
}

export interface QueueHistory {
  name: string;
  at_ms: number[];
  waiting: number[];
  running: number[];
  failed: number[];
  rate: number[];
}

export interface LiveJob {
  id: string;
  queue: string;
  label: string | null;
  item: string | null;
  state: string;
  reason: string | null;
  attempts: number;
  crashes: number;
  worker: string | null;
  progress: Progress | null;
  error: string | null;
}

export interface JobRecord extends LiveJob {
  payload: unknown;
  result: unknown;
  priority: number;
  run_at_ms: number;
  max_attempts: number;
  interruptions: number;
  timeout_ms: number | null;
  key: string | null;
  limit_key: string | null;
  created_ms: number;
  started_ms: number | null;
  finished_ms: number | null;
  cancel_ms: number | null;
  node: string | null;
}

export interface Attempt {
  claim: number;
  node: string;
  worker: string | null;
  pid: number | null;
  started_ms: number;
  duration_ms: number;
  outcome: string;
  error: string | null;
}

export interface Crash {
  id: string;
  component: string;
  crew: string;
  node: string;
  at_ms: number;
  pid: number | null;
  reason: string;
  text: string;
  exit_code: number | null;
  signal: number | null;
  job: string | null;
  memory: number | null;
  uptime_ms: number | null;
  charged: boolean;
  follows: string;
  stacks: string;
  lines: string[];
  frames: string[];
}

export interface JobDetail extends JobRecord {
  attempt_history: Attempt[];
  crash_reports: Crash[];
}

export interface Operation {
  id: number;
  at_ms: number;
  who: string;
  verb: string;
  target: string;
  detail: string | null;
  origin: string | null;
}

export interface Crew {
  name: string;
  queue: string;
  handler: string;
  workers: number;
  scaled: number | null;
}

export interface Pause {
  scope: string;
  who: string;
  reason: string | null;
  since_ms: number;
  until_ms: number | null;
}

export interface Finding {
  severity: "error" | "warning" | "note";
  cause: string;
  about: string;
  text: string;
  remedy: string;
  since_ms: number | null;
}

export interface Diagnosis {
  well: boolean;
  status: string | null;
  store: string;
  headline: string;
  findings: Finding[];
  at_ms: number;
}

export interface LogLine {
  at_ms: number;
  level: string;
  text: string;
  component: string | null;
  job: string | null;
}

export interface Info {
  version: string;
  node: string;
  supervisor: { node: string | null; pid: number | null; started_ms: number | null; answers: boolean } | null;
  pages: { title: string; url: string }[];
}

export interface Answer {
  component: string;
  text: string;
}

export interface Session {
  name: string;
  kind: string;
  scopes: string[];
  csrf: string | null;
}

export interface Health {
  status: string;
  errors: string[];
}

export interface LiveEvent {
  topic: string;
  type: string;
  timestamp_ms: number;
  removed?: boolean;
  worker?: Worker;
  queue?: Queue;
  job?: LiveJob;
  health?: Health;
}
