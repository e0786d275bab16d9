// Which loops are compiled for several instruction sets, the best one being taken when the module is loaded.
// Sanitizers do not bear the load-time choice, other processors do not have these sets: there it is plain code.
#pragma once

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define OUTCORE_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define OUTCORE_CLONES
#endif
// A body shared by cloned functions has to be inlined into each of them, or it stays plain code.
#define OUTCORE_INLINE inline __attribute__((always_inline))
// A loop over the lanes of one vector: unrolled, it would be taken apart before the vectoriser sees it.
#define OUTCORE_LANES _Pragma("GCC unroll 1")
