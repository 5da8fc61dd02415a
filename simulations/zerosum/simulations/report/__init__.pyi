from .page import write_report as write_report
from .public import write_public_report as write_public_report
