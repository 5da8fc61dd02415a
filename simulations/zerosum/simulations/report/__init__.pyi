from .board import write_board as write_board
from .board import write_planned_board as write_planned_board
from .page import write_report as write_report
from .public import write_public_report as write_public_report
