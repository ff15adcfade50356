/* What becomes of a thread's ticket, seen from within: the interceptor's sources are part of this program.
 *
 *   ticket_state PTX CONTROL_PAGE */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "aliquot_control.h"
#include "batch.h"
#include "cost.h"
#include "lease.h"
#include "loader.h"
#include "monitor.h"
#include "tenant.h"
#include "ticket.h"

#define CALL(name, ...) ((int (*)())aq_real_dlsym(driver, #name))(__VA_ARGS__)
#define STREAMS 4
#define MANY (AQ_STREAMS + 1)
#define KERNEL_NS UINT64_C(200000)
#define SLIP_NS 400000
#define NOT_SUPPORTED 801
#define MUST(condition) \
  if (!(condition)) fprintf(stderr, "line %d: not %s\n", __LINE__, #condition), exit(1)

static char text[65536];
static void *driver;
static CUcontext context, other;
static CUfunction kernel;
static CUstream stream, streams[MANY]; /* the default one, and others */
static aq_control_page *control;

static int launch_to(CUstream to) {
  uint64_t nanoseconds = KERNEL_NS;
  void *parameters[] = {&nanoseconds};
  return cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, to, parameters, NULL);
}

static int launch(void) { return launch_to(stream); }

/* The thread's ticket for a stream; NULL if it has none. */
static const aq_ticket *ticket_for(CUstream to) {
  for (uint32_t i = 0; i < aq_lane_mine->used; i++)
    if (aq_lane_mine->tickets[i].stream == to) return &aq_lane_mine->tickets[i];
  return NULL;
}

static int64_t left_of(CUstream to) { return ticket_for(to)->left; }

static bool is_good_for(CUstream to) {
  const aq_ticket *ticket = ticket_for(to);
  const uint32_t *word = control->cards[0].core_share ? aq_lease_word(0) : &aq_slice.control->sequence;
  return ticket && ticket->word == word && ticket->epoch == *word;
}

static bool ticket_is_good(void) { return is_good_for(stream); }

/* Work of unknown length brings no ticket; and a thread that is kept from running for long enough finds its own ended,
 * because all of its work is over. */
static void get_ticket(void) {
  for (int tries = 0; tries < 100 && !ticket_is_good(); tries++) MUST(!cuCtxSynchronize() && !launch());
  MUST(ticket_is_good());
}

/* For what holds while the thread is not kept from running. */
static bool holds(bool (*scenario)(void)) {
  for (int tries = 0; tries < 20; tries++)
    if (scenario()) return true;
  return false;
}

static bool pays_for_launches(void) {
  get_ticket();
  int64_t before = left_of(stream);
  MUST(!launch());
  return left_of(stream) < before && ticket_is_good();
}

/* Every stream's ticket pays for what goes to it, and for nothing else. */
static bool pays_on_each_stream(void) {
  int64_t left[STREAMS];
  get_ticket(); /* the cost is known */
  for (int i = 0; i < STREAMS; i++) MUST(!launch_to(streams[i]));
  for (int i = 0; i < STREAMS; i++) left[i] = is_good_for(streams[i]) ? left_of(streams[i]) : -1;
  MUST(!launch_to(streams[0]));
  MUST(!launch_to(streams[STREAMS - 1]));
  for (int i = 0; i < STREAMS; i++) {
    bool pays = i == 0 || i == STREAMS - 1;
    if (!is_good_for(streams[i]) || (left_of(streams[i]) < left[i]) != pays) return false;
  }
  return true;
}

/* There is a ticket for more streams than have one only after one of them has lost its own. */
static bool goes_from_stream_to_stream(void) {
  uint32_t good = 0;
  get_ticket();
  for (int i = 0; i < MANY; i++) MUST(!launch_to(streams[i]));
  for (int i = 0; i < MANY; i++) good += is_good_for(streams[i]);
  return good == AQ_STREAMS && is_good_for(streams[MANY - 1]);
}

/* A stream that the thread has turned away from gets its end event when the thread next comes the slow way, twice. */
static bool is_ended_when_it_is_quiet(void) {
  get_ticket();
  MUST(!launch_to(streams[0]));
  MUST(!launch_to(streams[0]));
  bool spent = is_good_for(streams[0]);
  MUST(!launch_to(streams[1]));
  MUST(!launch_to(streams[2]));
  return spent && !is_good_for(streams[0]) && !ticket_for(streams[0])->batch;
}

/* The thread's own default stream is one, by whichever name. */
static bool knows_the_threads_own_stream(void) {
  uint64_t nanoseconds = KERNEL_NS;
  void *parameters[] = {&nanoseconds};
  get_ticket();
  MUST(!cuLaunchKernel_ptsz(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
  return is_good_for((CUstream)CU_STREAM_PER_THREAD);
}

/* The cost of a kernel is the time of a batch over all that was submitted, by tickets or not. */
static bool learns_from_what_was_paid(void) {
  for (int round = 0; round < 20; round++) {
    get_ticket();
    for (int i = 0; i < 2; i++) MUST(!launch());
  }
  MUST(!cuCtxSynchronize());
  get_ticket();
  return aq_cost(aq_kernel(kernel, 1)) < KERNEL_NS * 3 / 2;
}

/* A launch that had looked at its ticket just before that was taken back is charged by its past, and not taken for another
 * process's, of which there is none. */
static bool charges_what_slips_past(void) {
  get_ticket();
  while (ticket_is_good()) usleep(100); /* until the monitor has seen the batch's end */
  uint64_t before = aq_slice.usage->cards[0].busy_ns;
  ((aq_ticket *)ticket_for(stream))->left -= SLIP_NS;
  MUST(!launch());
  MUST(aq_slice.usage->cards[0].busy_ns == aq_flights[0].charges.charged_ns);
  return aq_slice.usage->cards[0].busy_ns - before >= SLIP_NS;
}

/* What does not pay keeps what it is worth. */
static void spends_no_more_than_is_left(void) {
  int64_t left = 5;
  MUST(!aq_ticket_spend(&left, 6) && left == 5);
  MUST(aq_ticket_spend(&left, 5) && left == 0);
}

/* A ticket is worth nothing, not less, to who takes it back at the moment in which its thread finds it too small. */
static bool is_never_worth_less_than_nothing(void) {
  get_ticket();
  aq_ticket *ticket = (aq_ticket *)ticket_for(stream);
  aq_monitor_lock();
  aq_batch *batch = aq_batch_of(ticket);
  bool mine = batch && batch->ticket == ticket;
  ticket->left = -1;
  if (mine) aq_ticket_take_back(batch);
  MUST(!mine || ticket->settled == 0);
  ticket->left = 1;
  aq_monitor_unlock();
  MUST(!launch() && !cuCtxSynchronize());
  return mine;
}

static bool is_new_after_a_change(void) {
  aq_control_page wanted = *control;
  get_ticket();
  int64_t before = left_of(stream);
  aq_control_publish(control, &wanted);
  MUST(!ticket_is_good());
  MUST(!launch());
  return left_of(stream) >= before && ticket_is_good();
}

/* Whether the card may be leased, in words that no program of the tenant's can write. */
static void lease(uint32_t share, uint32_t gate) {
  aq_control_page wanted = *control;
  wanted.cards[0].core_share = share;
  control->cards[0].window_us = 8000;
  control->cards[0].lease_end_ns = INT64_MAX;
  control->cards[0].gate = gate;
  control->heartbeat_ns = aq_now_ns() + UINT64_C(60000000000);
  aq_control_publish(control, &wanted);
}

static bool is_good_for_one_lease(void) {
  lease(AQ_WHOLE_CARD, 2);
  get_ticket();
  bool good = ticket_is_good();
  control->cards[0].gate = 4;
  bool ended = !ticket_is_good();
  get_ticket();
  lease(0, 0);
  return good && ended;
}

/* Nor is there one for what an arbiter that is silent has left closed. */
static void is_not_had_at_a_closed_gate(void) {
  lease(AQ_WHOLE_CARD, 3);
  control->heartbeat_ns = 1;
  for (int i = 0; i < 5; i++) {
    MUST(!cuCtxSynchronize() && !launch());
    MUST(!ticket_is_good());
  }
  lease(0, 0);
}

static bool stays_with_the_same_context(void) {
  get_ticket();
  MUST(!cuCtxSetCurrent(context));
  return ticket_is_good();
}

static void ends_with_a_wait(void) {
  get_ticket();
  MUST(!launch_to(streams[0]));
  MUST(!cuCtxSynchronize());
  MUST(!ticket_is_good() && !is_good_for(streams[0]));
}

static void ends_with_a_copy_that_waits(void) {
  CUdeviceptr memory;
  char byte;
  MUST(!cuMemAlloc_v2(&memory, 1));
  get_ticket();
  MUST(ticket_for(stream)->batch);
  MUST(!cuMemcpyDtoH_v2(&byte, memory, 1));
  MUST(!ticket_for(stream)->batch); /* it would be, had it only run out */
  MUST(!cuMemFree_v2(memory));
}

static void ends_with_another_context(void) {
  CUcontext popped;
  get_ticket();
  MUST(!cuCtxPushCurrent_v2(other));
  MUST(!ticket_is_good());
  MUST(!cuCtxPopCurrent_v2(&popped));
  get_ticket();
  MUST(!cuCtxPopCurrent_v2(&popped));
  MUST(!ticket_is_good());
  MUST(!cuCtxSetCurrent(context));
}

static void *capture_elsewhere(void *unused) {
  CUstream origin;
  CUgraph graph;
  MUST(!cuCtxSetCurrent(context));
  MUST(!CALL(cuStreamCreate, &origin, 1));
  MUST(!cuStreamBeginCapture_v2(origin, CU_STREAM_CAPTURE_MODE_RELAXED));
  MUST(!CALL(cuStreamEndCapture, origin, &graph));
  return unused;
}

static void wait_for_main(void *arrived) {
  pthread_mutex_lock(arrived);
  pthread_mutex_unlock(arrived);
}

typedef struct {
  bool good, ended;
} outcome;

/* Whether a ticket that pays for work still to be done ends while `act` goes on in another thread. */
static outcome meanwhile(void *(*act)(void *), void *argument) {
  static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
  pthread_t thread;
  get_ticket();
  pthread_mutex_lock(&held);
  MUST(!CALL(cuLaunchHostFunc, stream, wait_for_main, &held));
  MUST(!launch());
  bool good = ticket_is_good();
  pthread_create(&thread, NULL, act, argument);
  pthread_join(thread, NULL);
  bool ended = !ticket_is_good();
  pthread_mutex_unlock(&held);
  return (outcome){good, ended};
}

/* A ticket may end of itself meanwhile; one that did not end was not ended. */
static bool always_ends(void *(*act)(void *), void *argument) {
  bool any = false;
  for (int tries = 0; tries < 10; tries++) {
    outcome seen = meanwhile(act, argument);
    if (seen.good && !seen.ended) return false;
    any |= seen.good;
  }
  return any;
}

/* Of these the simulated driver has none, so they begin nothing; a driver that has them may have begun when it answers. */
typedef enum { AGAIN, AGAIN_PTSZ, TO_GRAPHICS, TO_GRAPHICS_PTSZ } rare_capture;

static CUresult begin_rarely(rare_capture how, CUstream origin, CUgraph graph) {
  int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  if (how == AGAIN) return cuStreamBeginRecaptureToGraph(origin, mode, graph, NULL, NULL);
  if (how == AGAIN_PTSZ) return cuStreamBeginRecaptureToGraph_ptsz(origin, mode, graph, NULL, NULL);
  return how == TO_GRAPHICS ? cuStreamBeginCaptureToCig(origin, NULL) : cuStreamBeginCaptureToCig_ptsz(origin, NULL);
}

static void *capture_rarely(void *how) {
  CUstream origin;
  CUgraph graph;
  MUST(!cuCtxSetCurrent(context));
  MUST(!CALL(cuStreamCreate, &origin, 1));
  MUST(!CALL(cuGraphCreate, &graph, 0));
  MUST(begin_rarely(*(rare_capture *)how, origin, graph) == NOT_SUPPORTED);
  return NULL;
}

static void ends_with_a_capture_elsewhere(void) { MUST(always_ends(capture_elsewhere, NULL)); }

static void ends_with_any_capture_elsewhere(void) {
  for (rare_capture how = AGAIN; how <= TO_GRAPHICS_PTSZ; how++) MUST(always_ends(capture_rarely, &how));
}

static void *do_nothing(void *argument) { return argument; }

/* It is the capture that ends it, not the time that passes. */
static bool stays_while_its_work_waits(void) { return !meanwhile(do_nothing, NULL).ended && ticket_is_good(); }

static void ends_with_a_wait_for_an_event(void) {
  CUevent event;
  get_ticket();
  MUST(!CALL(cuEventCreate, &event, 2));
  MUST(!cuStreamWaitEvent(stream, event, 0));
  MUST(!ticket_is_good());
}

static void *launch_once(void *lane) {
  MUST(!cuCtxSetCurrent(context));
  for (int tries = 0; tries < 100 && !ticket_is_good(); tries++) MUST(!cuCtxSynchronize() && !launch());
  *(aq_lane **)lane = aq_lane_mine;
  return NULL;
}

static void ends_with_its_thread(void) {
  aq_lane *lane = NULL;
  pthread_t thread;
  pthread_create(&thread, NULL, launch_once, &lane);
  pthread_join(thread, NULL);
  MUST(lane && lane->used);
  for (uint32_t i = 0; i < lane->used; i++) MUST(!lane->tickets[i].batch);
}

static void ends_with_its_stream(void) {
  MUST(!CALL(cuStreamCreate, &stream, 1));
  get_ticket();
  MUST(!cuStreamDestroy_v2(stream));
  MUST(!ticket_is_good());
  stream = NULL;
}

static void stays_with_the_parent(void) {
  int status;
  get_ticket();
  pid_t child = fork();
  if (!child) _exit(aq_lane_exists() || ticket_is_good());
  MUST(waitpid(child, &status, 0) == child);
  MUST(!status);
}

static void load_kernel(void) {
  void *module;
  MUST(!CALL(cuModuleLoadData, &module, text));
  MUST(!CALL(cuModuleGetFunction, &kernel, module, "aliquot_spin"));
}

static void ends_with_its_context(void) {
  MUST(!cuCtxSetCurrent(other));
  load_kernel();
  get_ticket();
  MUST(!cuCtxDestroy_v2(other));
  MUST(!ticket_is_good());
}

int main(int argc, char **argv) {
  driver = dlopen("libcuda.so.1", RTLD_NOW);
  FILE *file = argc == 3 ? fopen(argv[1], "rb") : NULL;
  MUST(driver && file && fread(text, 1, sizeof text - 1, file));
  MUST(!CALL(cuInit, 0));
  MUST(!cuCtxCreate_v2(&other, 0, 0));
  MUST(!cuCtxCreate_v2(&context, 0, 0));
  load_kernel();
  control = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, open(argv[2], O_RDWR), 0);
  MUST(control != MAP_FAILED);
  for (int i = 0; i < MANY; i++) MUST(!CALL(cuStreamCreate, &streams[i], 1));
  MUST(holds(pays_for_launches));
  MUST(holds(pays_on_each_stream));
  MUST(holds(goes_from_stream_to_stream));
  MUST(holds(is_ended_when_it_is_quiet));
  MUST(holds(knows_the_threads_own_stream));
  MUST(holds(learns_from_what_was_paid));
  MUST(holds(charges_what_slips_past));
  spends_no_more_than_is_left();
  MUST(holds(is_never_worth_less_than_nothing));
  MUST(holds(is_new_after_a_change));
  MUST(holds(is_good_for_one_lease));
  is_not_had_at_a_closed_gate();
  MUST(holds(stays_with_the_same_context));
  ends_with_a_wait();
  ends_with_a_copy_that_waits();
  ends_with_another_context();
  MUST(holds(stays_while_its_work_waits));
  ends_with_a_capture_elsewhere();
  ends_with_any_capture_elsewhere();
  ends_with_a_wait_for_an_event();
  ends_with_its_thread();
  ends_with_its_stream();
  stays_with_the_parent();
  ends_with_its_context();
  return 0;
}
