// Attributes of loops that are compiled for several instruction sets; loading the module chooses the best set.
// Sanitizers do not support the load-time choice, and other processors lack these sets: both get plain code.
#pragma once

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define OUTCORE_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define OUTCORE_CLONES
#endif
// A body shared by cloned functions has to be inlined into each of them, or it stays plain code.
#define OUTCORE_INLINE inline __attribute__((always_inline))
// A loop over the lanes of one vector: unrolling would dissolve it before the vectoriser sees it.
#define OUTCORE_LANES _Pragma("GCC unroll 1")
