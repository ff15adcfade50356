/* What these programs have in common: options, kernels that take so long, streams, and when to begin and what to print.
 *
 *   PROGRAM KERNELS [KEY=VALUE...]    KERNELS: the directory of spin.ptx and meet.ptx
 *
 * A program prints "ready" when it has all that it needs, and waits for a line with the instant of CLOCK_MONOTONIC, in
 * nanoseconds, at which to begin. At its end it prints a line for each thing that it has to tell, "NAME VALUE": what is its own,
 * "begin_ns", "end_ns" and "launched_ns", which is how long all kernels run that it has launched since. Then it waits for the end
 * of its input.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef PROGRAM_H
#define PROGRAM_H

#include <stddef.h>
#include <stdint.h>

#define NON_BLOCKING 1
#define CAPTURE_RELAXED 2
#define TIMING 0
#define NO_TIMING 2
#define ATTACH_GLOBAL 1
#define MIB ((size_t)1 << 20)

typedef void *stream, *event, *graph;
typedef void (*host_function)(void *data);
typedef void (*stream_callback)(stream where, int status, void *data);

int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *), cuCtxSynchronize(void);
int cuModuleLoadData(void **, const void *), cuModuleGetFunction(void **, void *, const char *);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, stream, void **, void **);
int cuLaunchHostFunc(stream, host_function, void *);
int cuStreamCreate(stream *, unsigned), cuStreamSynchronize(stream), cuStreamWaitEvent(stream, event, unsigned);
int cuStreamWaitValue32(stream, uint64_t, uint32_t, unsigned), cuStreamWriteValue32(stream, uint64_t, uint32_t, unsigned);
int cuEventCreate(event *, unsigned), cuEventRecord(event, stream), cuEventSynchronize(event), cuEventElapsedTime(float *, event, event);
int cuStreamAddCallback(stream, stream_callback, void *, unsigned);
int cuStreamBeginCapture_v2(stream, int), cuStreamEndCapture(stream, graph *), cuGraphInstantiateWithFlags(graph *, graph, uint64_t);
int cuGraphLaunch(graph, stream);
int cuMemAlloc_v2(uint64_t *, size_t), cuMemFree_v2(uint64_t), cuMemAllocManaged(uint64_t *, size_t, unsigned);
int cuMemGetInfo_v2(size_t *, size_t *), cuMemPrefetchAsync(uint64_t, size_t, int, stream), cuMemsetD32_v2(uint64_t, unsigned, size_t);
int cuMemHostAlloc(void **, size_t, unsigned), cuMemHostRegister_v2(void *, size_t, unsigned);
int cuMemcpyHtoDAsync_v2(uint64_t, const void *, size_t, stream), cuMemcpyDtoHAsync_v2(void *, uint64_t, size_t, stream);

/* Ends the program where a call fails. */
#define CHECK(call)                    \
  do {                                 \
    int result_ = (call);              \
    if (result_) fail(#call, result_); \
  } while (0)

_Noreturn void fail(const char *what, int result);

/* A kernel that runs for so long. Two of the same length are the same function, two of other lengths are two functions. */
typedef struct {
  void *function;
  uint64_t ns;
} kernel;

/* Reads the options and makes the first card's context current. */
void start(int argc, char **argv);
/* Makes it current in another thread. */
void join_context(void);
/* An option's value. */
const char *text_option(const char *key, const char *otherwise);
uint64_t option(const char *key, uint64_t otherwise);

kernel kernel_of(uint64_t us);
void launch(kernel which, stream where);
/* A kernel that writes a value to one word, and runs on for so long when another word has reached it. */
kernel meeting_of(uint64_t us);
/* A kernel that uses some memory, for so long when that has come to the card. */
kernel using_of(uint64_t us);
void launch_meeting(kernel which, const volatile uint32_t *arrive, const volatile uint32_t *await, uint32_t value, stream where);
void launch_using(kernel which, uint64_t memory, size_t bytes, stream where);
stream new_stream(void);
event new_event(unsigned flags);
/* Zeroed words that the card and the host share. */
uint32_t *shared_words(void);

uint64_t now_ns(void);
void sleep_until(uint64_t when_ns);
/* A host function: sleeps for the milliseconds that `data` points to. */
void nap(void *milliseconds);

/* Prints "ready" and waits until it is time. */
void wait_to_begin(void);
/* Prints one thing. */
void tell(const char *name, double value);
/* Prints what all programs tell, and waits for the end of the input. */
void finish(void);

#endif
