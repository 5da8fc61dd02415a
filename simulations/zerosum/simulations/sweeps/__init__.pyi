from .sweep import sweep as sweep
