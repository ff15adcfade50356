/* Threads that submit work in every way at once: to default and own streams, in contexts that they switch and end, into
 * captures and by graphs. Every call must succeed.
 *
 *   ticket_race PTX SEED THREADS SECONDS */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define STREAMS 3 /* of each thread in each context; the first is the default stream */
#define CONTEXTS 2
#define MOST 30

typedef int (*function)();

static function launch_kernel, set_current, push, pop, create_context, destroy_context, load, get_function, create_stream,
    destroy_stream, synchronize, begin, end, instantiate, launch_graph, destroy_graph, destroy_exec, create_event, record, wait_event;

static struct {
  void *handle, *kernel;
} contexts[CONTEXTS];
static char text[65536];
static double until;

typedef struct {
  uint64_t random;
  int context;
  void *streams[CONTEXTS][STREAMS];
} worker;

#define CHECK(call)                                                                   \
  do {                                                                                \
    int result = (call);                                                              \
    if (result) fprintf(stderr, "line %d: error %d\n", __LINE__, result), exit(1);    \
  } while (0)

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static unsigned below(worker *me, unsigned limit) {
  me->random = me->random * 6364136223846793005u + 1442695040888963407u;
  return (unsigned)(me->random >> 33) % limit;
}

static void *kernel_of(void *module) {
  void *kernel;
  CHECK(get_function(&kernel, module, "aliquot_spin"));
  return kernel;
}

static void *load_kernel(void) {
  void *module;
  CHECK(load(&module, text));
  return kernel_of(module);
}

static void launch(worker *me, void *kernel, void *stream) {
  static const uint64_t lengths[] = {3000, 10000, 60000};
  uint64_t nanoseconds = lengths[below(me, 3)];
  void *parameters[] = {&nanoseconds};
  CHECK(launch_kernel(kernel, 1u, 1u, 1u, 1u, 1u, 1u, 0u, stream, parameters, (void **)NULL));
}

static void *some_stream(worker *me) { return me->streams[me->context][below(me, STREAMS)]; }

static void submit(worker *me) {
  void *stream = some_stream(me);
  for (unsigned count = 1 + below(me, MOST); count; count--) launch(me, contexts[me->context].kernel, stream);
}

static void switch_context(worker *me) {
  int to = (int)below(me, CONTEXTS);
  void *before;
  if (below(me, 2)) {
    CHECK(set_current(contexts[to].handle));
    me->context = to;
    return;
  }
  CHECK(push(contexts[to].handle));
  launch(me, contexts[to].kernel, NULL);
  CHECK(pop(&before));
}

/* A second stream joins the capture on the way. */
static void capture(worker *me) {
  void **own = me->streams[me->context], *graph, *executable, *fork, *join;
  launch(me, contexts[me->context].kernel, own[2]);
  CHECK(create_event(&fork, 2u));
  CHECK(create_event(&join, 2u));
  CHECK(begin(own[1], 2));
  CHECK(record(fork, own[1]));
  CHECK(wait_event(own[2], fork, 0u));
  for (unsigned count = 1 + below(me, 5); count; count--)
    launch(me, contexts[me->context].kernel, own[1]), launch(me, contexts[me->context].kernel, own[2]);
  CHECK(record(join, own[2]));
  CHECK(wait_event(own[1], join, 0u));
  CHECK(end(own[1], &graph));
  CHECK(instantiate(&executable, graph, (uint64_t)0));
  for (unsigned count = below(me, 4); count; count--) CHECK(launch_graph(executable, own[1]));
  CHECK(synchronize(own[1]));
  CHECK(destroy_exec(executable));
  CHECK(destroy_graph(graph));
}

static void renew_stream(worker *me) {
  void **stream = &me->streams[me->context][1 + below(me, STREAMS - 1)];
  CHECK(destroy_stream(*stream));
  CHECK(create_stream(stream, 1u));
}

/* A context that ends while the thread may launch to its default stream without asking. */
static void short_context(worker *me) {
  void *context;
  CHECK(create_context(&context, 0u, 0));
  void *kernel = load_kernel();
  for (unsigned count = below(me, 4); count; count--) launch(me, kernel, NULL);
  CHECK(synchronize(NULL));
  CHECK(destroy_context(context));
}

static void *work(void *argument) {
  worker *me = argument;
  for (int i = CONTEXTS - 1; i >= 0; i--) {
    CHECK(set_current(contexts[i].handle));
    for (int s = 1; s < STREAMS; s++) CHECK(create_stream(&me->streams[i][s], 1u));
  }
  while (now() < until) {
    unsigned what = below(me, 100);
    if (what < 60) submit(me);
    else if (what < 75) switch_context(me);
    else if (what < 82) capture(me);
    else if (what < 90) CHECK(synchronize(some_stream(me)));
    else if (what < 97) renew_stream(me);
    else short_context(me);
  }
  for (int i = 0; i < CONTEXTS; i++) {
    CHECK(set_current(contexts[i].handle));
    for (int s = 0; s < STREAMS; s++) CHECK(synchronize(me->streams[i][s]));
  }
  return NULL;
}

static void look_up(void) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (!driver) fprintf(stderr, "%s\n", dlerror()), exit(1);
  const struct {
    function *place;
    const char *name;
  } wanted[] = {
      {&launch_kernel, "cuLaunchKernel"},     {&set_current, "cuCtxSetCurrent"},      {&push, "cuCtxPushCurrent_v2"},
      {&pop, "cuCtxPopCurrent_v2"},           {&create_context, "cuCtxCreate_v2"},    {&destroy_context, "cuCtxDestroy_v2"},
      {&load, "cuModuleLoadData"},            {&get_function, "cuModuleGetFunction"}, {&create_stream, "cuStreamCreate"},
      {&destroy_stream, "cuStreamDestroy_v2"}, {&synchronize, "cuStreamSynchronize"}, {&begin, "cuStreamBeginCapture_v2"},
      {&end, "cuStreamEndCapture"},           {&instantiate, "cuGraphInstantiateWithFlags"}, {&launch_graph, "cuGraphLaunch"},
      {&destroy_graph, "cuGraphDestroy"},     {&destroy_exec, "cuGraphExecDestroy"},  {&create_event, "cuEventCreate"},
      {&record, "cuEventRecord"},             {&wait_event, "cuStreamWaitEvent"},
  };
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
    *wanted[i].place = (function)dlsym(driver, wanted[i].name);
    if (!*wanted[i].place) fprintf(stderr, "no %s\n", wanted[i].name), exit(1);
  }
  CHECK(((function)dlsym(driver, "cuInit"))(0u));
}

static void read_text(const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file) perror(path), exit(1);
  text[fread(text, 1, sizeof text - 1, file)] = '\0';
  fclose(file);
}

int main(int argc, char **argv) {
  enum { MOST_THREADS = 16 };
  static worker workers[MOST_THREADS];
  pthread_t threads[MOST_THREADS];
  if (argc != 5) return 2;
  int count = atoi(argv[3]);
  read_text(argv[1]);
  look_up();
  for (int i = 0; i < CONTEXTS; i++) {
    CHECK(create_context(&contexts[i].handle, 0u, 0));
    contexts[i].kernel = load_kernel();
  }
  until = now() + atof(argv[4]);
  for (int i = 0; i < count; i++) {
    workers[i].random = strtoull(argv[2], NULL, 10) * 1000003u + (uint64_t)i;
    if (pthread_create(&threads[i], NULL, work, &workers[i])) return 1;
  }
  for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
  return 0;
}
